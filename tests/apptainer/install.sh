#!/usr/bin/env bash
# Apptainer for tests on a Debian that does not package it: unstable's package, unpacked in the folder that is the only
# argument beside the C library that it was built with. The system's package sources and libraries are left alone.
# Users install Apptainer from their distribution or https://apptainer.org instead.
set -euo pipefail
PREFIX=$(realpath -m "${1:?usage: install.sh FOLDER}")
fail() { echo "install.sh: $*" >&2; exit 3; }
[ "$(id -u)" = 0 ] || fail "needs root"
command -v apt-get > /dev/null || fail "needs apt-get"
[ "$(dpkg --print-architecture)" = amd64 ] || fail "written for amd64"

export DEBIAN_FRONTEND=noninteractive
NEEDED=(patchelf squashfs-tools squashfuse uidmap fuse2fs fuse-overlayfs debootstrap ca-certificates)
apt-get install -y -qq --no-install-recommends "${NEEDED[@]}" > /dev/null 2>&1 ||
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends "${NEEDED[@]}" > /dev/null; }

WORK=$(mktemp -d)
trap 'rm -rf "$WORK"' EXIT
mkdir -p "$WORK"/{lists/partial,cache/archives/partial,parts,libraries}
chmod 755 "$WORK"
. /etc/os-release
MIRROR=$(apt-get indextargets --format '$(RELEASE) $(SITE)' |
  awk -v release="$VERSION_CODENAME" '$1 == release && $2 ~ /debian$/ {print $2; exit}')
[ -n "$MIRROR" ] || fail "no Debian mirror among this machine's package sources"
echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $MIRROR sid main" > "$WORK/sources.list"
APT=(apt-get -qq -o Dir::Etc::sourcelist="$WORK/sources.list" -o Dir::Etc::sourceparts="$WORK/parts"
  -o Dir::State::Lists="$WORK/lists" -o Dir::Cache="$WORK/cache" -o APT::Sandbox::User=root)
"${APT[@]}" update
(cd "$WORK" && "${APT[@]}" download apptainer libc6 libseccomp2 libsqlite3-0)

rm -rf "$PREFIX"
mkdir -p "$PREFIX"
dpkg -x "$WORK"/apptainer_*.deb "$PREFIX"
for deb in "$WORK"/lib*.deb; do dpkg -x "$deb" "$WORK/libraries"; done
mv "$PREFIX/etc" "$PREFIX/usr/etc"
OWN=$PREFIX/usr/lib/apptainer-libraries
mkdir -p "$OWN" "$PREFIX/usr/var/lib/apptainer/mnt/session"
cp -L "$WORK"/libraries/usr/lib/x86_64-linux-gnu/{ld-linux-x86-64.so.2,libc.so.6,libm.so.6,libresolv.so.2} \
  "$WORK"/libraries/usr/lib/x86_64-linux-gnu/{libnss_files.so.2,libnss_dns.so.2,libseccomp.so.2,libsqlite3.so.0} "$OWN/"
for program in "$PREFIX/usr/bin/apptainer" "$PREFIX/usr/lib/x86_64-linux-gnu/apptainer/bin/starter"; do
  patchelf --force-rpath --set-interpreter "$OWN/ld-linux-x86-64.so.2" --set-rpath "$OWN" "$program"
done
# the starter looks for its prefix one level too deep
for folder in var etc bin; do ln -sfn "../$folder" "$PREFIX/usr/lib/$folder"; done
# in a container or a small virtual machine root may lack some of its capabilities
"$PREFIX/usr/bin/apptainer" config global --set "root default capabilities" no
grep -q '^root:' /etc/subuid || usermod --add-subuids 300000-365535 --add-subgids 300000-365535 root
"$PREFIX/usr/bin/apptainer" --version
