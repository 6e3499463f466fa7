# pip install couchbase
import os

from couchbase.auth import PasswordAuthenticator
from couchbase.cluster import Cluster
from couchbase.options import ClusterOptions

address = os.environ.get("ORIBI_CONNSTR", "couchbase://127.0.0.1")
cluster = Cluster(address, ClusterOptions(PasswordAuthenticator("Administrator", "password")))
documents = cluster.bucket("default").default_collection()

documents.upsert("greeting", {"text": "Hello from Python"})
print(documents.get("greeting").content_as[dict]["text"])
cluster.close()
