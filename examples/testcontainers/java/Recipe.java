// org.testcontainers:testcontainers, com.couchbase.client:java-client
import com.couchbase.client.java.Cluster;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.Base64;
import java.util.Map;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.utility.MountableFile;

public class Recipe {
  public static void main(String[] arguments) throws Exception {
    try (var oribi = new GenericContainer<>("oribi:latest")) {
      oribi
          .withEnv(Map.of("ORIBI_ADMIN_USER", "ci", "ORIBI_ADMIN_PASSWORD", "secret-ci", "ORIBI_INIT", "/init.toml"))
          .withCopyFileToContainer(MountableFile.forHostPath("init.toml"), "/init.toml")
          .withExposedPorts(11210, 8091)
          .waitingFor(Wait.forHttp("/healthz").forPort(8091))
          .start();
      var form = "hostname=" + oribi.getHost() + "&kv=" + oribi.getMappedPort(11210) + "&mgmt=" + oribi.getMappedPort(8091);
      var external = HttpRequest.newBuilder(URI.create("http://" + oribi.getHost() + ":" + oribi.getMappedPort(8091)
              + "/node/controller/setupAlternateAddresses/external"))
          .header("Authorization", "Basic " + Base64.getEncoder().encodeToString("ci:secret-ci".getBytes()))
          .PUT(HttpRequest.BodyPublishers.ofString(form));
      HttpClient.newHttpClient().send(external.build(), BodyHandlers.discarding());
      try (var cluster = Cluster.connect("couchbase://" + oribi.getHost() + ":" + oribi.getMappedPort(11210), "app", "secret-app")) {
        // Before it is ready, this SDK looks for the manager at its usual port, which is another one outside.
        var shop = cluster.bucket("shop");
        shop.waitUntilReady(Duration.ofSeconds(30));
        var orders = shop.scope("eu").collection("orders");
        System.out.println("order-1: " + orders.get("order-1").contentAsObject().getInt("total"));
      }
    }
  }
}
