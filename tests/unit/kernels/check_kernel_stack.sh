#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# check_kernel_stack.sh USAGE: what the compiler said of each kernel that it made machine code of
# (what the driver makes for other devices is not known). None may need more stack than a context has
# from the start, 1024 bytes a thread: the driver makes it larger at the first launch that needs it
# and waits for all that runs in the context first, a kernel that waits for this one too. Exit status
# 1 if one does, or if there is none of which anything is said.
awk -v most=1024 '
/Compiling entry function/ { split($0, part, "\047"); name = part[2]; kernels++ }
/cumulative stack size/ {
    for (i = 1; i < NF; i++)
        if ($(i + 1) == "bytes" && $(i + 2) == "cumulative") {
            told++
            if ($i > most) {
                print name ": " $i " bytes of stack, more than " most
                failed = 1
            }
        }
}
END {
    print kernels + 0 " kernels, " told + 0 " with a stack"
    exit failed || told == 0
}' "$1"
