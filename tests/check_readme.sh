#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The C program that the README shows must be tests/example.c, letter for letter.
set -u
tests=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
diff -u "$tests/example.c" <(sed -n '/^```c$/,/^```$/{/^```/d;p}' "$tests/../README.md")
