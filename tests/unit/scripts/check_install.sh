#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_install.sh: installed programs find the library, and pkg-config the headers, where the library's
# folder is given whole, as some distributions do. Only configures.
set -u
here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd) || exit 1
# shellcheck source=tests/report/checks.sh
. "$here/../../report/checks.sh"

expect_status 0 cmake -S "$here/../../.." -B "$work/build" -DSYMMEM_GPU_BACKENDS=OFF \
    -DCMAKE_INSTALL_PREFIX="$work/prefix" -DCMAKE_INSTALL_LIBDIR="$work/prefix/some/lib"
# shellcheck disable=SC2016 # the loader knows it
has "$work/build/cmake_install.cmake" '\$ORIGIN/../some/lib'
mkdir -p "$work/prefix/some/lib/pkgconfig" "$work/prefix/include"
cp "$work/build/symmem.pc" "$work/prefix/some/lib/pkgconfig/" || fail "no symmem.pc"
if have pkg-config; then
    export PKG_CONFIG_PATH=$work/prefix/some/lib/pkgconfig
    is "the headers' folder" "$(realpath "$(pkg-config --variable=includedir symmem)")" "$work/prefix/include"
    is "the library's folder" "$(realpath "$(pkg-config --variable=libdir symmem)")" "$work/prefix/some/lib"
fi
conclude
