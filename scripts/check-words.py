#!/usr/bin/env python3
"""Words of this project that the field has other words for must not come back.

Checks documents, and comments and help texts of Rust files. Not checked is what is in backticks (identifiers, messages
of the program) or in code blocks, and docs/reference, which is made of the program's texts.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The word, and what to write instead (docs/glossary.md).
WORDS = {
    "afresh": "again, from scratch",
    "anew": "again; rewritten (a WAL)",
    "at leisure": "throttled",
    "buried": "reaped",
    "bury": "reap",
    "calm": "quiescent",
    "crowd": "yield threshold",
    "go on": "continue, resume",
    "goes on": "continues, resumes",
    "he": "the operator, the process, it",
    "in good order": "cleanly",
    "in vain": "without success",
    "introduced": "authenticated",
    "little by little": "incrementally",
    "mend": "repair, fix",
    "mended": "repaired, fixed",
    "nobody": "no process, no connection, no user",
    "patience": "timeout",
    "sleepers": "waiters",
    "somebody": "a process, a connection, a user",
    "stranger": "unauthenticated peer, other local user",
    "strangers": "unauthenticated peers, other local users",
    "surplus": "divergent suffix",
    "under way": "in progress, in flight",
    "vouch": "endorse",
    "vouches": "endorses",
    "whoever": "the process, the user",
    "written anew": "rewritten",
}
FOUND = re.compile(r"\b(" + "|".join(sorted(map(re.escape, WORDS), key=len, reverse=True)) + r")\b", re.IGNORECASE)
COMMENT = re.compile(r"\s*//")


def prose(path):
    """The lines that are checked, with their numbers."""
    is_document, in_block = path.suffix == ".md", False
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if is_document:
            if line.startswith("```"):
                in_block = not in_block
            if in_block:
                continue
            line = re.sub(r"\]\([^)]*\)", "]", line)
        elif not COMMENT.match(line):
            continue
        yield number, re.sub(r"`[^`]*`", "", line)


PATTERNS = ("*.md", "docs/*.md", "docs/decisions/*.md", "crates/**/*.rs", "fuzz/fuzz_targets/**/*.rs")
checked = sorted(path for pattern in PATTERNS for path in ROOT.glob(pattern))
found = [
    (path.relative_to(ROOT), number, match.group(1))
    for path in checked
    for number, line in prose(path)
    for match in FOUND.finditer(line)
]
for path, number, word in found:
    print(f"{path}:{number}: `{word}`: {WORDS[word.lower()]}")
print(f"{len(checked)} files, {len(found)} words that are not the field's")
sys.exit(1 if found else 0)
