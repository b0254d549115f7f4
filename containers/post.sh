#!/bin/sh
# The %post of every image of the study, and of the twins that the tests build from Debian instead of CUDA:
#   post.sh [REQUIREMENTS_FILE ...]
# System packages, then the environment /opt/kevin with what the files list, resolved together.
set -eu
export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8

apt-get update -qq
apt-get install -y -qq --no-install-recommends ca-certificates g++ python3 python3-dev python3-venv
rm -rf /var/lib/apt/lists/* /var/cache/apt/archives/*.deb

python3 -m venv /opt/kevin
set -- $(for file; do [ ! -s "$file" ] || echo "--requirement=$file"; done)
if [ $# -gt 0 ]; then
  # deepspeed compiles its operators when they are used, not here
  DS_BUILD_OPS=0 /opt/kevin/bin/python -m pip install --quiet --no-cache-dir "$@"
fi
/opt/kevin/bin/python -m pip freeze > /opt/kevin/installed.txt
