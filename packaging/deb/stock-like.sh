#!/usr/bin/env bash
# Builds a package that is laid out like stock's salt-master (saltstack/salt, pkg/debian): links in
# /usr/bin into /opt, a unit, and /etc/salt/master as a configuration file. Stock's own is in no
# registry that a test may ask. What it runs only waits.
#
#   packaging/deb/stock-like.sh DIRECTORY
set -euo pipefail

directory=$(realpath "$1")
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

install -d "$root"/{DEBIAN,etc/salt,opt/saltstack/salt,usr/bin,usr/lib/systemd/system}
for name in salt salt-cp salt-key salt-master salt-run; do
    printf '#!/bin/sh\necho "stock %s"\n' $name >"$root/opt/saltstack/salt/$name"
    chmod 0755 "$root/opt/saltstack/salt/$name"
    ln -s /opt/saltstack/salt/$name "$root/usr/bin/$name"
done
echo "user: salt" >"$root/etc/salt/master"
cat >"$root/usr/lib/systemd/system/salt-master.service" <<'UNIT'
[Service]
ExecStart=/bin/sleep infinity
User=salt
[Install]
WantedBy=multi-user.target
UNIT
echo /etc/salt/master >"$root/DEBIAN/conffiles"
cat >"$root/DEBIAN/control" <<'CONTROL'
Package: salt-master
Version: 3008.3
Architecture: all
Maintainer: nobody <nobody@localhost>
Description: laid out like stock's
CONTROL
cat >"$root/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
set -e
getent passwd salt >/dev/null || useradd --system --user-group salt
install -d -o salt -g salt /etc/salt/pki/master /var/cache/salt/master
systemctl enable --now salt-master
POSTINST
chmod 0755 "$root/DEBIAN/postinst"
dpkg-deb --root-owner-group --build "$root" "$directory/stock.deb" >/dev/null
