#!/usr/bin/env bash
# Builds the Debian package out of a binary that is there already.
#
#   packaging/deb/build.sh BINARY DIRECTORY   writes DIRECTORY/saltern_VERSION_ARCHITECTURE.deb
#
# The debug symbols go into saltern-dbgsym_VERSION_ARCHITECTURE.deb beside it (packaging/README.md).
# VERSION names another version than the binary's own, LEVEL another level of compression. Asks for
# dpkg-deb and dpkg-shlibdeps (Debian: dpkg-dev), for strip, objcopy and readelf (binutils), for cargo
# and python3 (the list of crates), and for no network.
#
# The same binary and sources give the same bytes, wherever and whenever they are packed (reproduce.sh):
# times are SOURCE_DATE_EPOCH (by default that of the last commit), owners root, names sorted.
set -euo pipefail
umask 022
export LC_ALL=C TZ=UTC
# The manual pages name the default of each option.
unset SALT_CONFIG_DIR

die() { echo "deb: $*" >&2; exit 1; }

[ $# = 2 ] || die "say BINARY DIRECTORY"
binary=$(realpath "$1")
# A build for tests can be made to die by whoever may ask its control socket. The program itself says
# it: a stripped one has no symbol to look for.
features=$("$binary" debug features) || die "$binary does not say which features it has"
if grep -qx fault-injection <<<"$features"; then
    die "$binary is built with the feature fault-injection, which is for tests: make build"
fi
mkdir -p "$2"
directory=$(realpath "$2")
cd "$(dirname "$0")"
for tool in dpkg-deb dpkg-shlibdeps strip objcopy readelf python3; do
    command -v "$tool" >/dev/null || die "$tool is missing: apt-get install dpkg-dev binutils python3"
done

# Without a checkout, the changelog is what changes with each release.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null ||
    stat -c %Y ../../CHANGELOG.md)}
export SOURCE_DATE_EPOCH

version=${VERSION:-$("$binary" --version | cut -d ' ' -f 2)}
architecture=$(dpkg --print-architecture)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root

# The libraries that stay dynamic, as Debian names their packages.
depends() {
    mkdir "$work/debian"
    printf 'Source: saltern\n\nPackage: saltern\nArchitecture: any\n' >"$work/debian/control"
    (cd "$work" && dpkg-shlibdeps -O root/usr/bin/saltern) | sed -n 's/^shlibs:Depends=//p'
}

# Debuggers (gdb, perf, addr2line, `saltern debug frames`) find the symbols by the build id.
build_id=$(readelf --notes "$binary" | sed -n 's/^ *Build ID: //p')
[ -n "$build_id" ] || die "$binary has no build id, by which its symbols could be found"
symbols=$work/symbols/usr/lib/debug/.build-id/${build_id:0:2}/${build_id:2}.debug
install -d "${symbols%/*}"
objcopy --only-keep-debug --compress-debug-sections "$binary" "$symbols"
chmod 0644 "$symbols"

install -D "$binary" "$root/usr/bin/saltern"
strip --strip-unneeded "$root/usr/bin/saltern"
objcopy --add-gnu-debuglink="$symbols" "$root/usr/bin/saltern"
install -d "$root/usr/lib/saltern"
# Called by these names the program is the command of stock.
for name in salt salt-cp salt-key salt-master salt-run; do
    ln -s ../../bin/saltern "$root/usr/lib/saltern/$name"
done

install -D -m 0644 -t "$root/usr/lib/systemd/system" ../systemd/saltern.{service,socket}
install -D -m 0644 ../systemd/saltern.tmpfiles "$root/usr/lib/tmpfiles.d/saltern.conf"
install -D -m 0644 default "$root/etc/default/saltern"
install -D -m 0644 logrotate "$root/usr/share/saltern/logrotate"

"$binary" documents "$work"
install -D -m 0644 -t "$root/usr/share/man/man1" "$work"/man/*.1
gzip -9n "$root"/usr/share/man/man1/*.1
completions=$work/completions
install -D -m 0644 "$completions/saltern.bash" \
    "$root/usr/share/bash-completion/completions/saltern"
install -D -m 0644 -t "$root/usr/share/fish/vendor_completions.d" "$completions/saltern.fish"
install -D -m 0644 -t "$root/usr/share/zsh/vendor-completions" "$completions/_saltern"

documents=$root/usr/share/doc/saltern
install -D -m 0644 -t "$documents" ../../README.md ../../CHANGELOG.md
(cd ../../docs && find . -name '*.md' -exec install -D -m 0644 {} "$documents/docs/{}" \;)
# The same as pages for a browser, which `make docs` builds; without network it may not have been.
if [ -e ../../target/docs/index.html ]; then
    cp -r ../../target/docs "$documents/html"
    chmod -R u=rwX,go=rX "$documents/html"
else
    echo "deb: the handbook was not built (make docs): the package has its text alone" >&2
fi
gzip -9n "$documents/CHANGELOG.md"
cat ../../LICENSE-MIT ../../LICENSE-APACHE >"$documents/copyright"
# All crates in the program, with their licences and hashes (CycloneDX).
../sbom.py "$version" "$(dpkg-architecture -q DEB_HOST_MULTIARCH)" >"$work/sbom.json"
install -m 0644 "$work/sbom.json" "$documents/saltern.cdx.json"
gzip -9n "$documents/saltern.cdx.json"

# Writes the package of a directory that has its scripts already. pack ROOT TEMPLATE DEPENDS
pack() {
    local root="$1" template="$2" depends="$3" name size package
    name=$(sed -n 's/^Package: //p' "$template")
    # As dpkg-gencontrol counts, for a disk's own blocks differ.
    size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' -o -printf '1\n' |
        awk '{ size += int(($1 + 1023) / 1024) } END { print size }')
    sed "s/@VERSION@/$version/; s/@ARCHITECTURE@/$architecture/; s/@SIZE@/$size/;
        s/@DEPENDS@/$depends/; s/@BUILD_ID@/$build_id/" "$template" >"$root/DEBIAN/control"
    (cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | sort -z |
        xargs -0 md5sum >DEBIAN/md5sums)
    package=$directory/${name}_${version}_$architecture.deb
    # Files that are older than that moment, too.
    find "$root" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
    # Several threads would compress in as many blocks as there are processors.
    dpkg-deb --root-owner-group --threads-max=1 -Zxz "-z${LEVEL:-6}" \
        --build "$root" "$package" >/dev/null
    echo "$package"
}

install -d "$root/DEBIAN" "$work/symbols/DEBIAN"
install -m 0755 -t "$root/DEBIAN" postinst prerm postrm
echo /etc/default/saltern >"$root/DEBIAN/conffiles"
pack "$root" control.in "$(depends)"
# The first line of the output is the package itself.
pack "$work/symbols" control-dbgsym.in ""
