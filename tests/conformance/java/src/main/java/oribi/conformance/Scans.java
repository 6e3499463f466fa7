package oribi.conformance;

import static com.couchbase.client.java.kv.ScanOptions.scanOptions;
import static oribi.conformance.Checks.equal;

import com.couchbase.client.core.msg.kv.MutationToken;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.kv.MutationResult;
import com.couchbase.client.java.kv.MutationState;
import com.couchbase.client.java.kv.ScanResult;
import com.couchbase.client.java.kv.ScanTerm;
import com.couchbase.client.java.kv.ScanType;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/** Scans over keys: ranges, prefixes and samples, that wait for what was written before them. */
final class Scans {
  private static final int DOCUMENTS = 100;

  private final Steps steps;

  Scans(Steps steps) {
    this.steps = steps;
  }

  String scans() {
    Collection collection = steps.collection;
    List<MutationToken> tokens = new ArrayList<>();
    Map<String, Long> cas = new TreeMap<>();
    for (int number = 0; number < DOCUMENTS; number++) {
      String key = String.format("scan-%03d", number);
      MutationResult stored = collection.upsert(key, key);
      cas.put(key, stored.cas());
      tokens.add(stored.mutationToken().orElseThrow());
    }
    MutationState written = MutationState.from(tokens.toArray(MutationToken[]::new));
    List<String> keys = List.copyOf(cas.keySet());
    equal(ids(written, ScanType.prefixScan("scan-")), keys);
    ScanType range = ScanType.rangeScan(ScanTerm.inclusive("scan-010"), ScanTerm.exclusive("scan-020"));
    List<ScanResult> some = collection.scan(range, scanOptions().consistentWith(written)).toList();
    equal(some.stream().map(ScanResult::id).sorted().toList(), keys.subList(10, 20));
    some.forEach(
        each -> {
          equal(each.contentAs(String.class), each.id());
          equal(each.cas(), cas.get(each.id()));
        });
    equal(ids(written, ScanType.samplingScan(10, 1)).stream().distinct().count(), 10L);
    equal(ids(written, ScanType.prefixScan("no-such-prefix")), List.of());
    return null;
  }

  private List<String> ids(MutationState written, ScanType scan) {
    return steps
        .collection
        .scan(scan, scanOptions().idsOnly(true).consistentWith(written))
        .map(ScanResult::id)
        .sorted()
        .toList();
  }
}
