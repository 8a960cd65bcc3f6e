#!/bin/sh
# rankfold in an image: numba reads compiled kernels only where it could write, so they are copied there once.
: "${NUMBA_CACHE_DIR:=${TMPDIR:-/tmp}/rankfold-kernels-$(id -u)}"
export NUMBA_CACHE_DIR
if [ ! -d "$NUMBA_CACHE_DIR" ]; then
    cp -rp /opt/rankfold/kernels "$NUMBA_CACHE_DIR.$$" &&
        mv -T "$NUMBA_CACHE_DIR.$$" "$NUMBA_CACHE_DIR" 2>/dev/null ||
        rm -rf "$NUMBA_CACHE_DIR.$$"
fi
exec /opt/rankfold/bin/rankfold "$@"
