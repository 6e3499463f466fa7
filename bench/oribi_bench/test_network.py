"""    python3 -m unittest discover --start-directory bench"""

import os
import subprocess
import sys
import unittest
from pathlib import Path

from . import network

# What connects over loopback under the default, and says which namespace that is and what was used.
PROGRAM = """
import os, socket
from oribi_bench import network
network.download = lambda needs_kudu: None
network.congestion_control, real = lambda: "bbr", network.congestion_control
try:
    network.use_default()
finally:
    network.congestion_control = real
listener = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(listener.getsockname())
used = client.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).rstrip(b"\\0").decode()
print(os.readlink("/proc/self/ns/net"), used, network.congestion_control())
"""


class Network(unittest.TestCase):
    def test_a_machine_with_another_default_is_measured_under_the_kernels(self):
        if subprocess.run(["unshare", "--net", "true"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
            self.skipTest("needs the right to make network namespaces")
        done = subprocess.run([sys.executable, "-B", "-c", PROGRAM], cwd=Path(__file__).resolve().parent.parent,
                              stdout=subprocess.PIPE, text=True, check=True)
        namespace, used, named = done.stdout.split()
        self.assertNotEqual(namespace, os.readlink("/proc/self/ns/net"))
        self.assertIn(used, network.DEFAULTS)
        self.assertEqual(used, named)

    def test_the_setting_of_the_machine_is_left_alone(self):
        before = network.SETTING.read_text()
        self.test_a_machine_with_another_default_is_measured_under_the_kernels()
        self.assertEqual(network.SETTING.read_text(), before)


if __name__ == "__main__":
    unittest.main()
