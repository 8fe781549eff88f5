#!/usr/bin/env bash
# Make what the emulator starts: a boot disc, and a disk with Debian, OpenVINO, ONNX Runtime and this checkout.
#
#   bench/emulated/image.sh WORK        writes WORK/boot.iso and WORK/root.img
#
# Wants root, Python 3.11 with pip (Debian bookworm's own version), and Debian's packages debootstrap e2fsprogs
# isolinux syslinux-common xorriso busybox-static cpio kmod.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
checkout=$(cd "$here/../.." && pwd)
mkdir -p "$1"
cd "$1"
root=$PWD/root

# The system, the packages, and this checkout with its plugins.
[ -d "$root/usr" ] || debootstrap --variant=minbase --include=python3,libgomp1 bookworm "$root"
rm -rf "$root/opt/site"
python3.11 -m pip install --quiet --target "$root/opt/site" "$checkout[test]"
cp /bin/busybox "$root/bin/busybox"
cp "$here/start.sh" "$root/opt/start.sh"
chmod +x "$root/opt/start.sh"
rm -rf "$root"/var/cache/apt/* "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,locale,man}
rm -f root.img
truncate -s "$(($(du -sm "$root" | cut -f1) * 12 / 10 + 64))M" root.img
mke2fs -q -t ext4 -d "$root" root.img

# The kernel, and a first file system that knows just enough to find the disk.
package=$(apt-cache depends linux-image-amd64 | sed -n 's/.*Depends: //p' | head -1)
release=${package#linux-image-}
[ -d kernel/boot ] || { apt-get download "$package" && dpkg -x "$package"_*.deb kernel && depmod -b kernel "$release"; }
rm -rf first && mkdir -p first/{bin,dev,proc,sys,disk,modules}
cp /bin/busybox first/bin/
for wanted in ata_piix crct10dif_generic sd_mod crc32c_generic ext4; do
    modprobe -d kernel -S "$release" --show-depends "$wanted" | sed 's/^insmod //'
done | grep -v '/arch/' | awk '!seen[$1]++ { print $1 }' >first/modules/order
xargs -a first/modules/order cp -t first/modules
cat >first/init <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/${module##*/}"; done </modules/order
until [ -b /dev/sdb ]; do sleep 1; done
mount -t ext4 -o ro,noatime /dev/sda /disk
mount -t proc proc /disk/proc; mount -t sysfs sys /disk/sys; mount --move /dev /disk/dev
exec switch_root /disk /opt/start.sh
INIT
chmod +x first/init
mkdir -p disc
(cd first && find . | cpio --quiet -o -H newc) | gzip -1 >disc/first.gz
cp "kernel/boot/vmlinuz-$release" disc/kernel
cp /usr/lib/ISOLINUX/isolinux.bin /usr/lib/syslinux/modules/bios/ldlinux.c32 disc/
# fsrm: the emulated CPU has it without erms, which the kernel takes for granted. The others save time.
cat >disc/isolinux.cfg <<'CONFIG'
DEFAULT linux
LABEL linux
  KERNEL /kernel
  APPEND initrd=/first.gz console=ttyS0,115200 clearcpuid=fsrm no5lvl intel_idle.max_cstate=0 nokaslr mitigations=off tsc=reliable random.trust_cpu=on
CONFIG
xorriso -as mkisofs -quiet -o boot.iso -b isolinux.bin -c boot.cat -no-emul-boot -boot-load-size 4 -boot-info-table disc
ls -l boot.iso root.img
