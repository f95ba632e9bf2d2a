#!/bin/sh
# The layout of every C file is what clang-format makes of it. Usage: format.sh SOURCE_ROOT
set -u
cd "$1" || exit 1
tool=$(command -v clang-format-14 || command -v clang-format) || {
    echo "clang-format is not installed: skipped"
    exit 77
}
git rev-parse --is-inside-work-tree >/dev/null 2>&1 || {
    echo "not a git checkout: skipped"
    exit 77
}
git ls-files '*.c' '*.h' | xargs "$tool" --dry-run -Werror
