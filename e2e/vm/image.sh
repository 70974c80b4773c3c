#!/bin/bash
# Makes the machine that the tests boot: image.sh DIR writes there
#
#   vmlinuz, initrd.gz   Debian's cloud kernel, and busybox with its virtio drivers
#   root.ext4            Debian of this host's release: systemd, sshd, busybox,
#                        rpm, containerd (which nothing starts)
#   id_ed25519           the key of its root
#
# As root, with the apt sources of this Debian host. Needs mmdebstrap e2fsprogs
# cpio busybox-static kmod openssh-client. Each step is said on stderr. With
# kernel=backports set before this the kernel is the newest of Debian's backports;
# with programs=yes it has what some recorded loads are.
set -euo pipefail

out=${1:?image.sh DIR}
work=$out/work fs=$out/work/fs
packages=systemd-sysv,systemd,dbus,udev,kmod,mount,util-linux,procps,iproute2,openssh-server,e2fsprogs,busybox-static,rpm
packages+=,containerd,runc,containernetworking-plugins
packages+=${programs:+,postgresql,redis-server,sqlite3,restic,gcc,libc6-dev}

say() { echo "machine image, $SECONDS s: $*" >&2; }

# The kernel is unpacked, not installed: that would make an initrd and ask for a
# boot loader. It is fetched in a hook, where apt knows its fresh lists.
root_tree() {
	local sources=/etc/apt/sources.list.d/debian.sources fetch release backports=()
	[[ -e $sources ]] || sources=/etc/apt/sources.list
	cp "$sources" "$work/"
	release=$(. /etc/os-release && echo "$VERSION_CODENAME")
	if [[ ${kernel:-} == backports ]]; then
		backports=("deb http://deb.debian.org/debian $release-backports main")
	fi
	fetch="cd '$work' && export APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG &&
		apt-get -qq -o APT::Sandbox::User=root download \
		\$(apt-cache ${backports:+-o APT::Default-Release=$release-backports} depends linux-image-cloud-amd64 | awk '/Depends: linux-image/ { print \$2; exit }')"
	mmdebstrap --quiet --mode=root --variant=essential \
		--aptopt='APT::Install-Recommends "false"' \
		--dpkgopt='path-exclude=/usr/share/man/*' \
		--dpkgopt='path-exclude=/usr/share/doc/*' \
		--dpkgopt='path-exclude=/usr/share/locale/*' \
		--include="$packages" --customize-hook="$fetch" \
		"$release" "$fs" "$work/${sources##*/}" "${backports[@]}"
}

kernel() {
	dpkg-deb -x "$work"/linux-image-*.deb "$work/kernel"
	cp "$work"/kernel/boot/vmlinuz-* "$out/vmlinuz"
	local modules
	modules=$(cd "$work/kernel" && ls -d lib/modules/* usr/lib/modules/* 2>/dev/null || true) # Debian 13 has them in /usr
	version=${modules##*/}
	mkdir -p "$fs/usr/lib/modules"
	cp -a "$work/kernel/$modules" "$fs/usr/lib/modules/"
	depmod -b "$fs" "$version"
}

# No PAM, no DNS, one host key: each saves time under emulation.
access() {
	ssh-keygen -q -t ed25519 -N '' -C plimsoll-vm -f "$out/id_ed25519"
	install -d -m 700 "$fs/root/.ssh"
	cp "$out/id_ed25519.pub" "$fs/root/.ssh/authorized_keys"
	rm -f "$fs"/etc/ssh/ssh_host_*
	ssh-keygen -q -t ed25519 -N '' -f "$fs/etc/ssh/ssh_host_ed25519_key"
	cat >"$fs/etc/ssh/sshd_config" <<-'E'
		HostKey /etc/ssh/ssh_host_ed25519_key
		PermitRootLogin prohibit-password
		PasswordAuthentication no
		UsePAM no
		UseDNS no
		Subsystem sftp internal-sftp
	E
}

# QEMU's user network has fixed addresses.
names() {
	echo testvm >"$fs/etc/hostname"
	printf '127.0.0.1 localhost testvm\n::1 localhost\n' >"$fs/etc/hosts"
	echo 0123456789abcdef0123456789abcdef >"$fs/etc/machine-id"
	: >"$fs/etc/fstab"
	cat >"$fs/etc/systemd/network/10-eth0.network" <<-'E'
		[Match]
		Name=eth0
		[Network]
		Address=10.0.2.15/24
		Gateway=10.0.2.2
		LinkLocalAddressing=no
		IPv6AcceptRA=no
	E
}

# vm-ready says on the console that the system is up. What no test needs and
# takes time at each boot is off.
services() {
	mkdir -p "$fs/etc/systemd/journald.conf.d"
	printf '[Journal]\nStorage=volatile\nRateLimitIntervalSec=0\n' >"$fs/etc/systemd/journald.conf.d/vm.conf"
	cat >"$fs/etc/systemd/system/vm-ready.service" <<-'E'
		[Unit]
		After=ssh.service systemd-networkd.service
		[Service]
		Type=oneshot
		StandardOutput=tty
		TTYPath=/dev/ttyS0
		ExecStart=/bin/echo VM-READY
		[Install]
		WantedBy=multi-user.target
	E
	systemctl --root="$fs" -q enable vm-ready.service systemd-networkd.service ssh.service
	systemctl --root="$fs" -q disable systemd-networkd-wait-online.service containerd.service \
		${programs:+postgresql.service redis-server.service}
	systemctl --root="$fs" -q mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer \
		e2scrub_all.timer e2scrub_reap.service fstrim.timer getty@tty1.service serial-getty@ttyS0.service \
		systemd-update-utmp.service systemd-update-utmp-runlevel.service systemd-pstore.service
	systemctl --root="$fs" -q set-default multi-user.target
	# Newer than /usr: nothing is brought up to date at boot.
	touch -d @4000000000 "$fs/etc/.updated" "$fs/var/.updated"
}

initrd() {
	local d=$work/initrd m
	mkdir -p "$d"/{dev,proc,new,m}
	cp "$(command -v busybox)" "$d/busybox"
	for m in virtio_pci virtio_blk; do
		modprobe -d "$fs" -S "$version" --show-depends "$m" | awk '/^insmod/ { print $2 }'
	done | awk '!seen[$0]++' | while read -r m; do
		cp "$m" "$d/m/"
		basename "$m" >>"$d/m/order"
	done
	cat >"$d/init" <<-'E'
		#!/busybox sh
		/busybox mount -t devtmpfs dev /dev
		while read m; do /busybox insmod /m/$m; done </m/order
		n=0; while [ ! -b /dev/vda ] && [ $n -lt 200 ]; do /busybox usleep 50000; n=$((n+1)); done
		/busybox mount -t ext4 /dev/vda /new || exec /busybox sh
		/busybox mount --move /dev /new/dev
		exec /busybox switch_root /new /sbin/init
	E
	chmod +x "$d/init"
	(cd "$d" && find . | cpio -o -H newc --quiet | gzip -1) >"$out/initrd.gz"
}

mkdir -p "$work"
say "fetching and unpacking Debian"
root_tree
say "kernel, settings and initrd"
kernel
access
names
services
initrd
say "file system"
truncate -s 4G "$out/root.ext4"
mkfs.ext4 -q -F -L root -E lazy_itable_init=0,lazy_journal_init=0 -d "$fs" "$out/root.ext4"
rm -rf "$work"
say "done, $(du -sh "$out" | cut -f1)"
