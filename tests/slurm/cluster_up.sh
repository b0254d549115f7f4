#!/usr/bin/env bash
# A real Slurm on this one host, for tests: munge, one controller, two nodes with fake GPUs. Loopback only, no systemd,
# no cgroups, no accounting; all state in the folder that is the only argument. Needs root, and /etc/slurm/slurm.conf,
# which job steps read whatever SLURM_CONF says: a file there that is not ours is left alone and stops this script.
# Other sizes: NODES, CPUS, MEM_MB, GPUS (of each node); they need not be there, Slurm is told to believe them.
set -euo pipefail
D=$(realpath -m "${1:?usage: cluster_up.sh FOLDER}")
NODES=${NODES:-2} CPUS=${CPUS:-2} MEM_MB=${MEM_MB:-8000} GPUS=${GPUS:-2}
H=$(hostname -s)
fail() { echo "cluster_up.sh: $*" >&2; exit 3; }

[ "$(id -u)" = 0 ] || fail "needs root"
for f in slurm.conf gres.conf; do
  [ ! -e "/etc/slurm/$f" ] || [ -L "/etc/slurm/$f" ] || fail "/etc/slurm/$f belongs to another cluster"
done
mkdir -p "$D"/{etc,state,log,dev,run,munge}
chmod 755 "$D" "$D"/{etc,state,log,dev}
chmod 711 "$D/run"
chmod 700 "$D/munge"
[ -s "$D/munge/key" ] || (umask 077 && head -c 1024 /dev/urandom > "$D/munge/key")

{
  cat <<CONF
ClusterName=test
SlurmctldHost=$H(127.0.0.1)
SlurmctldPort=16817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$D/run/munge.sock
CredType=cred/munge
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool-%n
SlurmctldPidFile=$D/run/slurmctld.pid
SlurmdPidFile=$D/run/slurmd-%n.pid
SlurmctldLogFile=$D/log/slurmctld.log
SlurmdLogFile=$D/log/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
GresTypes=gpu
MpiDefault=none
ReturnToService=2
SlurmdTimeout=10
SlurmctldTimeout=10
KillWait=5
MinJobAge=600
InactiveLimit=0
SchedulerParameters=sched_interval=5,batch_sched_delay=0,sched_min_interval=0
CONF
  for i in $(seq "$NODES"); do
    echo "NodeName=n$i NodeHostname=$H NodeAddr=127.0.0.1 Port=$((17000 + i)) CPUs=$CPUS RealMemory=$MEM_MB" \
      "Gres=gpu:fake:$GPUS State=UNKNOWN"
  done
  echo "PartitionName=gpu Nodes=ALL Default=YES MaxTime=60 State=UP"
} > "$D/etc/slurm.conf"
# character devices (null) named like GPUs, so that Slurm hands them out and sets CUDA_VISIBLE_DEVICES
for g in $(seq 0 $((GPUS - 1))); do [ -e "$D/dev/nvidia$g" ] || mknod "$D/dev/nvidia$g" c 1 3; done
echo "Name=gpu Type=fake File=$D/dev/nvidia[0-$((GPUS - 1))]" > "$D/etc/gres.conf"

mkdir -p /etc/slurm
left=$(readlink /etc/slurm/slurm.conf || true)  # by a run that was killed: its daemons have our ports
[ -z "$left" ] || [ "$left" = "$D/etc/slurm.conf" ] || "$(dirname "$0")/cluster_down.sh" "${left%/etc/slurm.conf}"
for f in slurm.conf gres.conf; do ln -sfn "$D/etc/$f" "/etc/slurm/$f"; done
munge -S "$D/run/munge.sock" -n > /dev/null 2>&1 ||
  munged --force --key-file="$D/munge/key" --socket="$D/run/munge.sock" --pid-file="$D/run/munged.pid" \
    --log-file="$D/log/munged.log" --seed-file="$D/munge/seed"
slurmctld -i
for i in $(seq "$NODES"); do slurmd -N "n$i"; done
for _ in $(seq 60); do
  [ "$(timeout 2 sinfo --noheader --format %T 2> /dev/null | sort -u)" = idle ] && exit 0
  sleep 0.25
done
sinfo --Node --long >&2
fail "the nodes did not become idle; logs are in $D/log"
