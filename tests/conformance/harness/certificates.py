"""An authority and a certificate of the server, made anew for each suite with TLS.

The certificate names the loopback address, because that is where the clients
connect to, and they verify it.
"""

import subprocess

from . import toolchains

DAYS = "2"


class Certificates:
    def __init__(self, directory):
        directory.mkdir(parents=True, exist_ok=True)
        self.ca, self.ca_der = directory / "ca.pem", directory / "ca.der"
        self.certificate, self.key = directory / "server.pem", directory / "server.key"
        ca_key, request, extensions = (directory / name for name in ("ca.key", "server.csr", "server.ext"))
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        openssl("req", "-x509", *new_key, "-keyout", ca_key, "-out", self.ca, "-days", DAYS,
                "-subj", "/CN=Oribi conformance")
        openssl("x509", "-in", self.ca, "-outform", "DER", "-out", self.ca_der)
        openssl("req", *new_key, "-keyout", self.key, "-out", request, "-subj", "/CN=localhost")
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth\n")
        openssl("x509", "-req", "-in", request, "-CA", self.ca, "-CAkey", ca_key, "-CAcreateserial",
                "-days", DAYS, "-extfile", extensions, "-out", self.certificate)

    def environment(self):
        """What tells a program to trust the authority."""
        return {"ORIBI_CA": str(self.ca), "ORIBI_CA_DER": str(self.ca_der)}


def openssl(*arguments):
    command = ["openssl", *map(str, arguments)]
    outcome = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if outcome.returncode != 0:
        last = (outcome.stderr.strip().splitlines() or [""])[-1]
        raise toolchains.ToolchainError(f"`openssl {arguments[0]}` ended with {outcome.returncode}: {last}")
