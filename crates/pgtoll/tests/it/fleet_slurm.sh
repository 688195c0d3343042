#!/bin/sh
# Runs an array of Slurm with two nodes, all in a network and with processes of its own (unshare), and
# loses a node while a task runs on it:
#
#     fleet_slurm.sh DIRECTORY PROGRAM BATCH_FILE PLAN
#
# DIRECTORY is empty, and gets the daemons' files. Task 3 of the array says where it runs and waits: its
# node's daemon is killed, with the process that watches the task, and started again. Slurm then runs the
# task once more, and the first one goes on beside it, as nobody stops it.
set -eu
cd "$1"
program=$2 batch=$3 plan=$4 host=$(hostname) address=10.9.9.1

ip link set lo up
# Slurm asks for no address of a network that has only the loopback's.
ip address add $address/32 dev lo

mkdir state n1 n2 bin
dd if=/dev/urandom of=key bs=1024 count=1 2>/dev/null
chmod 400 key
munged --force --key-file="$PWD/key" --socket="$PWD/munge" --pid-file="$PWD/munge.pid" \
    --log-file="$PWD/munge.log" --seed-file="$PWD/munge.seed"

cat >slurm.conf <<END
ClusterName=test
SlurmctldHost=$host($address)
AuthType=auth/munge
AuthInfo=socket=$PWD/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$PWD/state
SlurmctldPidFile=$PWD/slurmctld.pid
SlurmctldLogFile=$PWD/slurmctld.log
SlurmdSpoolDir=$PWD/%n
SlurmdPidFile=$PWD/%n.pid
SlurmdLogFile=$PWD/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
SlurmdTimeout=10
SchedulerParameters=sched_interval=1,sched_min_interval=1000,batch_sched_delay=0,bf_interval=1
NodeName=n1 NodeHostname=$host NodeAddr=$address Port=7001 CPUs=2 RealMemory=2000
NodeName=n2 NodeHostname=$host NodeAddr=$address Port=7002 CPUs=2 RealMemory=2000
PartitionName=all Nodes=n1,n2 Default=YES State=UP
END
export SLURM_CONF="$PWD/slurm.conf"
slurmctld
slurmd -N n1
slurmd -N n2

# What the batch file calls pgtoll.
mkfifo started go
cat >bin/pgtoll <<END
#!/bin/sh
set -eu
if [ "\$SLURM_ARRAY_TASK_ID" = 3 ] && mkdir "$PWD/waited" 2>/dev/null; then
    echo "\$SLURMD_NODENAME \$PPID" >"$PWD/started"
    read -r _ <"$PWD/go"
fi
echo "\$SLURM_ARRAY_TASK_ID" >>"$PWD/tasks"
exec "$program" "\$@"
END
chmod +x bin/pgtoll

lose_a_node() {
    read -r node watcher <started
    kill -KILL "$watcher" "$(cat "$node.pid")"
    slurmd -N "$node"
    echo >go
    echo "$node" >lost
    # Slurm waits for two minutes before it runs a task again. Until then this is no error: it is the first
    # job here.
    until scontrol update JobId=1_3 StartTime=now 2>/dev/null; do sleep 0.2; done
}
lose_a_node &

until scontrol ping | grep -q UP; do sleep 0.1; done
PATH="$PWD/bin:$PATH" sbatch --array=0-19 --output="$PWD/task-%a.log" "$batch" "$plan"
# Not sbatch --wait: it remembers the worst status that it ever saw, also that of a task that runs again.
states() { squeue --noheader --array --states=all --format=%T; }
until [ "$(states | grep -cx COMPLETED)" = 20 ]; do sleep 0.2; done
cat lost
