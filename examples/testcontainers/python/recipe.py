# pip install testcontainers couchbase
import os
import urllib.parse
import urllib.request
from base64 import b64encode

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions
from testcontainers.core.container import DockerContainer
from testcontainers.core.wait_strategies import HttpWaitStrategy

with (DockerContainer("oribi:latest")
      .with_env("ORIBI_ADMIN_USER", "ci").with_env("ORIBI_ADMIN_PASSWORD", "secret-ci")
      .with_env("ORIBI_INIT", "/init.toml")
      .with_volume_mapping(os.path.abspath("init.toml"), "/init.toml")
      .with_exposed_ports(11210, 8091)
      .waiting_for(HttpWaitStrategy(8091, "/healthz"))) as oribi:
    host = oribi.get_container_host_ip()
    kv, mgmt = oribi.get_exposed_port(11210), oribi.get_exposed_port(8091)
    urllib.request.urlopen(urllib.request.Request(
        f"http://{host}:{mgmt}/node/controller/setupAlternateAddresses/external", method="PUT",
        data=urllib.parse.urlencode({"hostname": host, "kv": kv, "mgmt": mgmt}).encode(),
        headers={"Authorization": "Basic " + b64encode(b"ci:secret-ci").decode()}))
    app = PasswordAuthenticator("app", "secret-app")
    cluster = Cluster(f"couchbase://{host}:{kv}", ClusterOptions(app))
    orders = cluster.bucket("shop").scope("eu").collection("orders")
    print("order-1:", orders.get("order-1").content_as[dict]["total"])
    cluster.close()
