// com.couchbase.client:java-client
import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import java.time.Duration;

public class Quickstart {
  public static void main(String[] arguments) {
    String address = System.getenv().getOrDefault("ORIBI_CONNSTR", "couchbase://127.0.0.1");
    Cluster cluster = Cluster.connect(address, "Administrator", "password");
    cluster.bucket("default").waitUntilReady(Duration.ofSeconds(10));
    Collection documents = cluster.bucket("default").defaultCollection();

    documents.upsert("greeting", JsonObject.create().put("text", "Hello from Java"));
    System.out.println(documents.get("greeting").contentAsObject().getString("text"));
    cluster.disconnect();
  }
}
