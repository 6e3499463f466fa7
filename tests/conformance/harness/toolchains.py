"""Installs and builds what each language needs, at the pinned versions.

Every function is cheap when nothing changed: the pinned files are hashed into
a stamp next to the result, and a matching stamp skips the work. A function
returns the command that starts the language's program, or raises
`ToolchainError` with the log to look at.
"""

import glob
import hashlib
import os
import shutil
import subprocess

from . import layout

# One process at a time, here and in .ci: the lock is on the project's root.
# A daemon that a package starts does not keep the lock.
APT_GET = ["flock", "--close", layout.REPOSITORY, "apt-get"]

# A download that stalls is tried again after a minute; Maven would wait half an hour.
MAVEN = ["mvn", "--quiet", "--batch-mode", "-Dmaven.wagon.rto=60000", "-Daether.connector.requestTimeout=60000"]

# For a command that downloads or compiles; it turns a hang into a failure.
BUILD_SECONDS_MAX = 1800


class ToolchainError(Exception):
    """A program could not be installed or built."""


def python():
    interpreter = layout.VENV / "bin" / "python"
    requirements = layout.SOURCES / "python" / "requirements.txt"

    def install():
        execute("python", ["python3", "-m", "venv", "--clear", layout.VENV])
        execute("python", [interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--only-binary", ":all:", "-r", requirements])

    once(layout.VENV, [requirements], install)
    return [interpreter, layout.SOURCES / "python" / "program.py"]


def node():
    npm_packages(layout.SOURCES / "node", layout.NODE)
    return ["node", layout.SOURCES / "node" / "program.js"]


def npm_packages(sources, directory):
    """Installs the packages that the lock file in `sources` names."""
    require(node="nodejs", npm="npm")
    manifests = [sources / name for name in ("package.json", "package-lock.json")]

    def install():
        for manifest in manifests:
            shutil.copy(manifest, directory / manifest.name)
        # The native part comes as a registry package of its own, so no install script has to run:
        # the script would only try to compile when that package is missing.
        execute("node", ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], directory)

    once(directory, manifests, install)


def node_environment():
    return {"NODE_PATH": str(layout.NODE / "node_modules")}


def java():
    sources = (layout.SOURCES / "java" / "src").rglob("*.java")
    maven("java", layout.SOURCES / "java" / "pom.xml", layout.JAVA, ["compiler:compile", "dependency:copy-dependencies"], sources)
    return ["java", "-Xmx1g", "-cp", java_class_path(), "oribi.conformance.Program"]


def maven(suite, pom, directory, goals, sources=()):
    """Runs the goals, which leave what they make in `directory`."""
    require(javac="openjdk-17-jdk-headless", mvn="maven")

    def install():
        command = [*MAVEN, "--file", pom, f"-Dconformance.directory={directory}", *goals]
        # What an earlier run downloaded is enough, so the network is only asked when it is not.
        try:
            execute(suite, [*command, "--offline"])
        except ToolchainError:
            execute(suite, command)

    once(directory, [pom, *sources], install)


def java_class_path():
    return f"{layout.JAVA / 'classes'}{os.pathsep}{layout.JAVA / 'lib' / '*'}"


def spring_data():
    sources = layout.SOURCES / "spring"
    maven("spring-data", sources / "pom.xml", layout.SPRING, ["compiler:compile", "dependency:copy-dependencies"],
          (sources / "src").rglob("*.java"))
    class_path = f"{layout.SPRING / 'classes'}{os.pathsep}{layout.SPRING / 'lib' / '*'}"
    return ["java", "-Xmx1g", "-cp", class_path, "oribi.spring.Program"]


def ottoman():
    npm_packages(layout.SOURCES / "ottoman", layout.OTTOMAN)
    return ["node", layout.SOURCES / "ottoman" / "program.js"]


def java_consumer():
    java()
    # Many of them start, and none runs for long.
    return ["java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", java_class_path(), "oribi.conformance.Consumer"]


def go_consumer():
    return [go_build("consumer", "./consumer")]


def go():
    return [go_build("program", ".")]


def go_build(name, *sources, module=layout.SOURCES / "go"):
    # Debian's own Go may be older than what the SDK asks for, so it is not installed from there.
    require(go=None)
    layout.GO.mkdir(parents=True, exist_ok=True)
    binary = layout.GO / name
    execute("go", ["go", "build", "-mod=readonly", "-o", binary, *sources], module)
    return binary


def rust():
    return [rust_build("conformance")]


def rust_build(name):
    require(cargo=None)
    execute("rust", ["cargo", "build", "--locked", "--target-dir", layout.RUST, "--bin", name],
            layout.SOURCES / "rust")
    return layout.RUST / "debug" / name


def memcapable():
    """The command's name differs: upstream says memcapable, Debian memccapable."""
    if shutil.which("memcapable"):
        return ["memcapable"]
    require(memccapable="libmemcached-tools")
    return ["memccapable"]


def memcached():
    """Failing requests are sent to it, too."""
    require(memcached="memcached")


def perl_client():
    """Cache::Memcached::Fast."""
    require_file("/usr/lib/*/perl5/*/Cache/Memcached/Fast.pm", "libcache-memcached-fast-perl")


def php_client():
    require(php="php-cli")
    require_file("/usr/lib/php/*/memcached.so", "php-memcached")


def ruby_client():
    """Dalli."""
    require(ruby="ruby")
    require_file("/usr/share/rubygems-integration/all/gems/dalli-*/lib/dalli.rb", "ruby-dalli")


def oribi():
    execute("oribi", ["cargo", "build", "--release", "--locked", "--package", "oribi"], layout.REPOSITORY)
    return layout.REPOSITORY / "target" / "release" / "oribi"


def once(directory, inputs, install):
    """Runs `install` unless it already succeeded with these very inputs."""
    digest = hashlib.sha256()
    for path in sorted(inputs):
        digest.update(path.read_bytes())
    stamp = directory / ".conformance-stamp"
    if stamp.exists() and stamp.read_text() == digest.hexdigest():
        return
    directory.mkdir(parents=True, exist_ok=True)
    install()
    stamp.write_text(digest.hexdigest())


def require(**packages):
    """Makes sure that commands exist, from the Debian package named for each where it may be installed."""
    for command, package in packages.items():
        if not shutil.which(command):
            install_package(package, f"`{command}`")


def require_file(pattern, package):
    """Makes sure that a file of a Debian package exists."""
    if not glob.glob(pattern):
        install_package(package, f"the Debian package {package}")


def install_package(package, what):
    if package is None or os.geteuid() != 0 or not shutil.which("apt-get"):
        raise ToolchainError(f"{what} is not installed")
    execute("apt", [*APT_GET, "update", "--quiet"])
    execute("apt", [*APT_GET, "install", "--yes", "--quiet", "--no-install-recommends", package])


def execute(suite, command, directory=None):
    """Runs one build command, its output appended to the suite's build log."""
    layout.LOGS.mkdir(parents=True, exist_ok=True)
    path = layout.LOGS / f"{suite}-build.log"
    command = [str(part) for part in command]
    with open(path, "ab") as log:
        log.write(f"--- {' '.join(command)}\n".encode())
        log.flush()
        try:
            code = subprocess.call(command, cwd=directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   timeout=BUILD_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise ToolchainError(f"`{' '.join(command)}` did not end within {BUILD_SECONDS_MAX} s, see {path}") from None
    if code != 0:
        raise ToolchainError(f"`{' '.join(command)}` ended with exit code {code}, see {path}")
