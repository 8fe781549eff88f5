#!/bin/sh
# The first program on the emulated machine: runs /mnt/run, and turns the machine off.
exec </dev/ttyS0 >/dev/ttyS0 2>&1
mount -t tmpfs tmp /tmp
grep -m1 flags /proc/cpuinfo | tr ' ' '\n' | grep -E 'amx|bf16' | tr '\n' ' '
mount -t ext4 /dev/sdb /mnt && cd /mnt
export PYTHONPATH=/opt/site HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
busybox date -s "2026-01-01 12:00:00" >/dev/null
sh /mnt/run
cd / && umount /mnt
echo "== done"
busybox poweroff -f
