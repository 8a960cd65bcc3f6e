#!/bin/sh
# Install rankfold from its wheel into an image of Debian, and compile its kernels; both kinds of image run this.
#
#   install.sh EXTRAS
set -eu
extras=$1 source=/source place=/opt/rankfold

export DEBIAN_FRONTEND=noninteractive
apt-get update -q
apt-get install -qy --no-install-recommends python3 python3-venv
rm -rf /var/lib/apt/lists/*

python3 -m venv "$place"
"$place/bin/python" -m pip install --no-cache-dir --quiet 'pip>=25.1'
"$place/bin/python" -m pip wheel --no-cache-dir --quiet --no-deps --wheel-dir /wheels "$source"
wheel=$(ls /wheels/rankfold-*.whl)
"$place/bin/python" -m pip install --no-cache-dir --quiet "rankfold[$extras] @ file://$wheel"
"$place/bin/python" -m pip check

NUMBA_CACHE_DIR="$place/kernels" "$place/bin/python" "$source/containers/compile_kernels.py"

install -m 755 "$source/containers/rankfold.sh" /usr/local/bin/rankfold
id -u rankfold >/dev/null 2>&1 || useradd --create-home --uid 1000 rankfold
mkdir -p /data
chown rankfold /data
rm -rf /wheels "$source"
