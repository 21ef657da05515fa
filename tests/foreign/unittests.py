"""Runs unit tests of CPython's test_sqlite3 and prints `ok NAME` or `failed NAME` for each.

The folder of tests is that of the sources; everything else of the package `test` is that of the interpreter, if it has it.
"""

import os
import sys
import types
import unittest

folder = sys.argv[1]
package = types.ModuleType("test")
package.__path__ = [folder]
sys.modules["test"] = package
results = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)


class Result(unittest.TextTestResult):
    def stopTest(self, test):
        super().stopTest(test)

    def addSuccess(self, test):
        super().addSuccess(test)
        print("ok", test.id(), file=results, flush=True)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        print("failed", test.id(), file=results, flush=True)

    def addError(self, test, error):
        super().addError(test, error)
        print("failed", test.id(), file=results, flush=True)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            print("failed", test.id(), file=results, flush=True)


names = [
    "test.test_sqlite3." + name[:-3]
    for name in sorted(os.listdir(os.path.join(folder, "test_sqlite3")))
    if name.startswith("test_") and name.endswith(".py")
]
suite = unittest.defaultTestLoader.loadTestsFromNames(names)
unittest.TextTestRunner(stream=sys.stderr, verbosity=2, resultclass=Result).run(suite)
