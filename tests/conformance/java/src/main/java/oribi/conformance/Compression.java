package oribi.conformance;

import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.equal;

import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInSpec;
import java.nio.charset.StandardCharsets;
import java.util.HashSet;
import java.util.List;
import java.util.Set;

/** Documents that one client compresses and another, which did not negotiate it, reads and changes. */
final class Compression {
  private static final String TEXT = "compressible ".repeat(400);

  private final Steps steps;

  Compression(Steps steps) {
    this.steps = steps;
  }

  String compression() {
    Cluster cluster = steps.clusterWithoutCompression();
    try {
      both(steps.collection, cluster.bucket(Steps.BUCKET).defaultCollection());
    } finally {
      cluster.disconnect();
    }
    return null;
  }

  private static void both(Collection with, Collection without) {
    List<Collection> readers = List.of(with, without);
    JsonObject document = JsonObject.create().put("n", 1).put("text", TEXT);
    with.upsert("compressed", document);
    equal(datatype(without, "compressed"), Set.of("json", "snappy"));
    for (Collection reader : readers) {
      equal(reader.get("compressed").contentAsObject(), document);
      equal(reader.lookupIn("compressed", List.of(LookupInSpec.get("text"))).contentAs(0, String.class), TEXT);
    }
    without.mutateIn(
        "compressed", List.of(MutateInSpec.increment("n", 1), MutateInSpec.upsert("user", 1).xattr()));
    for (Collection reader : readers) {
      equal(reader.get("compressed").contentAsObject(), JsonObject.create().put("n", 2).put("text", TEXT));
    }
    without.upsert("plain", document);
    equal(datatype(with, "plain"), Set.of("json"));
    equal(with.get("plain").contentAsObject(), document);
    byte[] text = TEXT.getBytes(StandardCharsets.UTF_8);
    with.upsert("bytes", text, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    without.binary().append("bytes", "-end".getBytes(StandardCharsets.UTF_8));
    with.binary().prepend("bytes", text);
    for (Collection reader : readers) {
      byte[] got = reader.get("bytes", getOptions().transcoder(RawBinaryTranscoder.INSTANCE)).contentAs(byte[].class);
      equal(new String(got, StandardCharsets.UTF_8), TEXT + TEXT + "-end");
    }
  }

  /** What the server keeps the document as. */
  private static Set<String> datatype(Collection collection, String key) {
    LookupInSpec virtual = LookupInSpec.get("$document.datatype").xattr();
    JsonArray names = collection.lookupIn(key, List.of(virtual)).contentAsArray(0);
    Set<String> set = new HashSet<>();
    names.forEach(name -> set.add((String) name));
    return set;
  }
}
