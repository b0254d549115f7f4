#!/usr/bin/env bash
# Stops exactly what cluster_up.sh started in this folder, by pid file, and removes its links from /etc/slurm.
set -u
D=$(realpath -m "${1:?usage: cluster_down.sh FOLDER}")
stop() {
  [ -s "$1" ] || return 0
  local pid
  pid=$(cat "$1")
  kill -TERM "$pid" 2> /dev/null || return 0
  for _ in $(seq 50); do kill -0 "$pid" 2> /dev/null || return 0; sleep 0.1; done
  kill -KILL "$pid" 2> /dev/null
}
if [ "$(readlink /etc/slurm/slurm.conf)" = "$D/etc/slurm.conf" ]; then
  timeout 10 scancel --partition=gpu 2> /dev/null
  for _ in $(seq 40); do [ -z "$(timeout 2 squeue --noheader 2> /dev/null)" ] && break; sleep 0.25; done
fi
for file in "$D"/run/slurmd-*.pid "$D"/run/slurmctld.pid "$D"/run/munged.pid; do stop "$file"; done
for f in slurm.conf gres.conf; do
  [ "$(readlink "/etc/slurm/$f")" = "$D/etc/$f" ] && rm -f "/etc/slurm/$f"
done
true
