#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# setup.sh [--venv DIRECTORY] [--torch VERSION] [--wheels DIRECTORY]: a virtual environment with torch from
# PyPI and symmem_torch in it, without the 3 GB of GPU libraries that this torch asks for: stand-ins take
# their place. Such an environment is for the tests of symmem_torch on CPUs and for nothing else. Run again it
# takes what is there and builds symmem_torch anew. Exit status: 0, or 1 where something failed, or 77 where
# there is no torch to be had.
set -u
# shellcheck source=tests/lib.sh
. "$(dirname -- "${BASH_SOURCE[0]}")/../lib.sh"

venv=/tmp/torch-venv version='' wheels=()
while [ "$#" -gt 1 ]; do
    case $1 in
    --venv) venv=$2 ;;
    --torch) version="==$2" ;;
    --wheels) wheels=(--find-links "$2") ;;
    *) break ;;
    esac
    shift 2
done
if [ "$#" -gt 0 ]; then
    say "usage: setup.sh [--venv DIRECTORY] [--torch VERSION] [--wheels DIRECTORY]"
    exit 1
fi

need_command g++ g++
need_command cmake cmake
need_command nm binutils
need_header dlpack/dlpack.h libdlpack-dev
have_command python3 && python3 -c 'import ensurepip, venv' 2>/dev/null || missing_packages+=(python3-venv)
has_python_headers() {
    python3 -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))'
}
have_command python3 && has_python_headers || missing_packages+=(python3-dev)
install_missing || exit 1

python=$venv/bin/python
[ -x "$python" ] || python3 -m venv "$venv" || exit 1
pip=("$python" -m pip --disable-pip-version-check)
if ! "${pip[@]}" install -q --no-deps --no-compile "${wheels[@]}" "torch$version"; then
    say "no torch$version to be had from PyPI"
    exit 77
fi
# What torch asks for itself, but for what is for GPUs; and what the tests want.
"${pip[@]}" install -q --no-compile "${wheels[@]}" filelock 'typing-extensions>=4.13' sympy networkx jinja2 fsspec \
    'setuptools>=77' wheel numpy pytest 2>&1 | grep -v 'torch .* requires\|dependency resolver' >&2
torch=$("$python" -c 'import importlib.util; print(*importlib.util.find_spec("torch").submodule_search_locations)') ||
    exit 1
if ! "$python" -c 'import torch' 2>/dev/null; then
    "$python" "$root/tests/pytorch/stand_ins.py" "$torch" || exit 1
fi
"$python" -c 'import torch; print("torch", torch.__version__)' || exit 1
log=$venv/build.log
say "building symmem_torch, which takes some minutes ..."
if ! "${pip[@]}" install -v --no-build-isolation --no-deps --force-reinstall "$root/tests/pytorch" >"$log" 2>&1; then
    grep -n -i -m 10 'error' "$log" >&2
    tail -n 20 "$log" >&2
    exit 1
fi
"$python" -c 'import symmem_torch' || exit 1
say "Done: $venv is for tests of symmem_torch on CPUs only."
