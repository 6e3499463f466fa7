// org.testcontainers:testcontainers-couchbase, com.couchbase.client:java-client
import static com.couchbase.client.java.query.QueryOptions.queryOptions;

import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import java.time.Duration;
import org.testcontainers.couchbase.BucketDefinition;
import org.testcontainers.couchbase.CouchbaseContainer;
import org.testcontainers.couchbase.CouchbaseService;
import org.testcontainers.utility.DockerImageName;

public class Module {
  public static void main(String[] arguments) {
    var image = DockerImageName.parse("oribi:latest").asCompatibleSubstituteFor("couchbase/server");
    try (var oribi = new CouchbaseContainer(image)) {
      oribi
          .withEnv("ORIBI_ADMIN_USER", "ci")
          .withEnv("ORIBI_ADMIN_PASSWORD", "secret-ci")
          .withCredentials("ci", "secret-ci")
          .withEnabledServices(CouchbaseService.KV, CouchbaseService.QUERY, CouchbaseService.INDEX)
          .withBucket(new BucketDefinition("shop"))
          .start();
      try (var cluster = Cluster.connect(oribi.getConnectionString(), oribi.getUsername(), oribi.getPassword())) {
        // Before it is ready, this SDK looks for the manager at its usual port, which is another one outside.
        var shop = cluster.bucket("shop");
        shop.waitUntilReady(Duration.ofSeconds(30));
        var orders = shop.defaultCollection();
        orders.upsert("order-1", JsonObject.create().put("total", 12));
        var found = cluster.query("SELECT RAW total FROM shop USE KEYS $1", queryOptions().parameters(JsonArray.from("order-1")));
        System.out.println("order-1: " + found.rowsAs(Integer.class).get(0));
      }
    }
  }
}
