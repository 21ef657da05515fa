#!/usr/bin/env python3
"""Words of this project that the field has other words for must not come back.

Checks documents, and Rust files: comments, help texts, messages and the parts of identifiers. Not checked is what is in
backticks or code blocks of prose, and docs/reference, which is made of the program's texts.

Also checked is that only the module `hint` of the crate `types` writes a text and its hint together, and takes them apart.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The word, and what to write instead (docs/glossary.md).
EVERYWHERE = {
    "afresh": "again, from scratch",
    "anew": "again; rewritten (a WAL)",
    "buried": "reaped",
    "beds": "wait buckets",
    "believe": "trust",
    "believed": "trusted",
    "believes": "trusts",
    "bury": "reap",
    "calm": "quiescent",
    "crowd": "yield threshold",
    "deal": "dispatch, handle",
    "deals": "dispatches, handles",
    "dealt": "dispatched, handled",
    "doubt": "suspect, uncertain",
    "doubted": "suspected",
    "doubts": "suspects",
    "left out": "offline, omitted, skipped",
    "made up": "synthetic",
    "mend": "repair, fix",
    "mended": "repaired, fixed",
    "news": "events",
    "nobody": "no process, no connection, no user",
    "overlay": "dirty-page map",
    "pass on": "forward",
    "passed on": "forwarded",
    "passes on": "forwards",
    "passing": "cascaded, forwarded",
    "patience": "timeout",
    "piece": "chunk, extent, slice, record, buffer",
    "pieces": "chunks, extents, slices, records",
    "said": "reported, stated, printed",
    "sleepers": "waiters",
    "somebody": "a process, a connection, a user",
    "stranger": "unauthenticated peer, other local user",
    "strangers": "unauthenticated peers, other local users",
    "troubles": "errors",
    "unwise": "undersized, risky",
    "vouch": "endorse",
    "vouched": "endorsed",
    "vouches": "endorses",
    "whoever": "the process, the user",
}
# Identifiers are not checked for these.
IN_SENTENCES = {
    "at leisure": "throttled",
    "go on": "continue, resume",
    "goes on": "continues, resumes",
    "in good order": "cleanly",
    "in vain": "without success",
    "little by little": "incrementally",
    "under way": "in progress, in flight",
    "written anew": "rewritten",
}
# Only in comments and documents.
IN_PROSE = {
    "he": "the operator, the process, it",
    "introduced": "authenticated",
    "surplus": "divergent suffix",
}
# A name of Unix, and keys and values of formats.
ALLOWED = re.compile(r'"nobody"|postgres or nobody|"vouched"|"left[_ ]out"|`left out`')


def pattern(words):
    return re.compile(r"\b(" + "|".join(sorted(map(re.escape, words), key=len, reverse=True)) + r")\b", re.IGNORECASE)


PROSE = pattern({**EVERYWHERE, **IN_SENTENCES, **IN_PROSE})
CODE = pattern({**EVERYWHERE, **IN_SENTENCES})
COMMENT = re.compile(r"\s*//")


def parts(code):
    """The same line with `OneWord` and `one_word` as words of their own."""
    return re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", code).replace("_", " ")


def lines(path):
    """The lines of a file as they are checked, each with its number and the pattern of its words."""
    is_document, in_block = path.suffix == ".md", False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if is_document and line.startswith("```"):
            in_block = not in_block
        if is_document and in_block:
            continue
        if is_document or COMMENT.match(line):
            line = re.sub(r"`[^`]*`", "", re.sub(r"\]\([^)]*\)", "]", line))
            yield number, line, PROSE
        else:
            yield number, parts(ALLOWED.sub("", line)), CODE


PATTERNS = ("*.md", "docs/*.md", "docs/decisions/*.md", "crates/**/*.rs", "tools/**/*.rs", "verify/**/*.rs", "fuzz/fuzz_targets/**/*.rs")
INSTEAD = {**EVERYWHERE, **IN_SENTENCES, **IN_PROSE}
checked = sorted(path for glob in PATTERNS for path in ROOT.glob(glob))
found = [
    (path.relative_to(ROOT), number, match.group(1))
    for path in checked
    for number, line, words in lines(path)
    for match in words.finditer(line)
]
# Tests may look for them, the fuzzer's examples contain them.
HINTS = ROOT / "crates/types/src/hint.rs"
MARK = re.compile(r"\\n *hint|\| hint: ")
TESTS = re.compile(r"^#\[cfg\(test\)\]\nmod tests \{", re.MULTILINE)


def without_tests(path):
    """Returns the text of a file up to its unit tests; nothing of a file with tests only."""
    if path == HINTS or {"tests", "examples"} & set(path.parts) or path.name == "tests.rs":
        return ""
    return TESTS.split(path.read_text(), maxsplit=1)[0]


hints = [
    (path.relative_to(ROOT), number)
    for path in checked
    if path.suffix == ".rs"
    for number, line in enumerate(without_tests(path).splitlines(), 1)
    if MARK.search(line)
]
for path, number in hints:
    print(f"{path}:{number}: a hint in a text: make it the hint() of the error, or use standfast_types::hint")
for path, number, word in found:
    print(f"{path}:{number}: `{word}`: {INSTEAD[word.lower()]}")
print(f"{len(checked)} files, {len(found)} words that are not the field's, {len(hints)} hints in texts")
sys.exit(1 if found or hints else 0)
