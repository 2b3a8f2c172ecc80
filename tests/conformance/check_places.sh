#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# check_places.sh SYMMEM_CONFORMANCE BACKEND: a backend may lie in /dev/shm, which a run otherwise hides
# by one of its own, and what is mapped of its object is not taken for memory that it has not given back.
set -u
runner=${1:?usage: check_places.sh SYMMEM_CONFORMANCE BACKEND} backend=${2:?}
folder=$(mktemp -d /dev/shm/symmem-places.XXXXXX) || exit 1
trap 'rm -rf -- "$folder"' EXIT
cp -- "$backend" "$folder/libplace.so" || exit 1
cd "$folder" || exit 1
for place in "$folder/libplace.so" ./libplace.so; do
    "$runner" --backend "$place" --ranks 2 --filter alloc.is_local || exit 1
done
