package oribi.conformance;

import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.MutateInOptions.mutateInOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.fails;

import com.couchbase.client.core.error.CouchbaseException;
import com.couchbase.client.core.error.DocumentExistsException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.InvalidArgumentException;
import com.couchbase.client.core.error.subdoc.DocumentNotJsonException;
import com.couchbase.client.core.error.subdoc.NumberTooBigException;
import com.couchbase.client.core.error.subdoc.PathExistsException;
import com.couchbase.client.core.error.subdoc.PathInvalidException;
import com.couchbase.client.core.error.subdoc.PathMismatchException;
import com.couchbase.client.core.error.subdoc.PathNotFoundException;
import com.couchbase.client.core.error.subdoc.PathTooDeepException;
import com.couchbase.client.core.error.subdoc.ValueInvalidException;
import com.couchbase.client.core.error.subdoc.XattrUnknownVirtualAttributeException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.codec.RawBinaryTranscoder;
import com.couchbase.client.java.codec.RawJsonTranscoder;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetOptions;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.LookupInResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.LookupInSpecStandard;
import com.couchbase.client.java.kv.MutateInOptions;
import com.couchbase.client.java.kv.MutateInResult;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.StoreSemantics;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/** The cases of sub_documents.json, where their fields are explained. */
final class SubDocumentCases {
  private static final Map<String, Class<? extends Throwable>> ERRORS =
      Map.ofEntries(
          Map.entry("document-exists", DocumentExistsException.class),
          Map.entry("document-not-found", DocumentNotFoundException.class),
          Map.entry("document-not-json", DocumentNotJsonException.class),
          Map.entry("invalid-argument", InvalidArgumentException.class),
          Map.entry("number-too-big", NumberTooBigException.class),
          Map.entry("path-exists", PathExistsException.class),
          Map.entry("path-invalid", PathInvalidException.class),
          Map.entry("path-mismatch", PathMismatchException.class),
          Map.entry("path-not-found", PathNotFoundException.class),
          // The SDK's name for it.
          Map.entry("path-too-big", PathTooDeepException.class),
          Map.entry("value-invalid", ValueInvalidException.class),
          // The SDK knows the status as one of a path, but not as one of a request, and raises the base class.
          Map.entry("xattr-cannot-modify-virtual-attribute", CouchbaseException.class),
          Map.entry("xattr-unknown-virtual-attribute", XattrUnknownVirtualAttributeException.class));

  private final Collection collection;

  SubDocumentCases(Collection collection) {
    this.collection = collection;
  }

  /** Runs the cases that change documents, or those that do not; says how many there were. */
  String run(boolean areChanges) throws Exception {
    String text = Files.readString(Path.of(System.getenv("ORIBI_SUB_DOCUMENTS")));
    int count = 0;
    for (Object each : JsonObject.fromJson(text).getArray("cases")) {
      JsonObject one = (JsonObject) each;
      if (one.containsKey("change") != areChanges) {
        continue;
      }
      count++;
      try {
        run(one);
      } catch (Throwable failure) {
        throw new AssertionError(one.getString("name") + ": " + failure, failure);
      }
    }
    return count + " cases";
  }

  private void run(JsonObject one) {
    String key = "case: " + one.getString("name");
    Long before = prepare(key, one);
    if (one.containsKey("change")) {
      change(key, one, before);
    } else if (one.containsKey("refused")) {
      fails(() -> collection.lookupIn(key, lookUpSpecs(one)), ERRORS.get(one.getString("refused")));
      return;
    }
    if (one.containsKey("look")) {
      LookupInResult found = collection.lookupIn(key, lookUpSpecs(one));
      JsonArray finds = one.getArray("finds");
      equal(one.getArray("look").size(), finds.size());
      for (int index = 0; index < finds.size(); index++) {
        if (one.getArray("look").getObject(index).getString("op").equals("exists")
            && finds.get(index) instanceof Boolean) {
          equal(found.exists(index), finds.get(index));
        } else {
          compare(found, index, finds.get(index));
        }
      }
    }
  }

  /** Stores what the case begins with; returns its CAS, or null where there is nothing. */
  private Long prepare(String key, JsonObject one) {
    if (one.containsKey("raw")) {
      byte[] bytes = one.getString("raw").getBytes(StandardCharsets.ISO_8859_1);
      collection.upsert(key, bytes, upsertOptions().transcoder(RawBinaryTranscoder.INSTANCE));
    } else if (one.containsKey("document")) {
      collection.upsert(key, one.get("document"));
    } else {
      return null;
    }
    if (one.containsKey("attributes")) {
      JsonObject attributes = one.getObject("attributes");
      for (String name : attributes.getNames()) {
        collection.mutateIn(key, List.of(MutateInSpec.upsert(name, attributes.get(name)).xattr()));
      }
    }
    return get(key, one).cas();
  }

  private GetResult get(String key, JsonObject one) {
    GetOptions options = getOptions();
    return collection.get(
        key,
        one.containsKey("raw")
            ? options.transcoder(RawBinaryTranscoder.INSTANCE)
            : options.transcoder(RawJsonTranscoder.INSTANCE));
  }

  private void change(String key, JsonObject one, Long before) {
    MutateInOptions options = mutateInOptions();
    if (one.containsKey("semantics")) {
      options.storeSemantics(StoreSemantics.valueOf(one.getString("semantics").toUpperCase()));
    }
    List<MutateInSpec> specs = new ArrayList<>();
    one.getArray("change").forEach(spec -> specs.add(changeSpec((JsonObject) spec)));
    if (one.containsKey("refused")) {
      fails(() -> collection.mutateIn(key, specs, options), ERRORS.get(one.getString("refused")));
      if (before != null) {
        equal(get(key, one).cas(), before);
        if (!one.containsKey("raw")) {
          equal(parsed(get(key, one).contentAs(byte[].class)), one.get("document"));
        }
      }
      return;
    }
    MutateInResult done = collection.mutateIn(key, specs, options);
    check(done.mutationToken().isPresent(), "a mutation token");
    if (one.containsKey("returns")) {
      JsonObject returns = one.getObject("returns");
      for (String index : returns.getNames()) {
        equal(done.contentAs(Integer.parseInt(index), Long.class), returns.getLong(index));
      }
    }
    if (one.get("becomes") == null) {
      fails(() -> collection.get(key), DocumentNotFoundException.class);
      return;
    }
    GetResult got = get(key, one);
    equal(parsed(got.contentAs(byte[].class)), one.get("becomes"));
    equal(got.cas(), done.cas());
  }

  /** Any JSON value, in the types that the table's values have. */
  static Object parsed(byte[] json) {
    return JsonArray.fromJson("[" + new String(json, StandardCharsets.UTF_8) + "]").get(0);
  }

  static void compare(LookupInResult found, int index, Object expected) {
    if (expected instanceof String && ((String) expected).startsWith("!")) {
      String name = ((String) expected).substring(1);
      fails(() -> found.contentAsBytes(index), ERRORS.get(name));
      if (name.equals("path-not-found")) {
        equal(found.exists(index), false);
      }
    } else {
      equal(parsed(found.contentAsBytes(index)), expected);
      equal(found.exists(index), true);
    }
  }

  private static List<LookupInSpec> lookUpSpecs(JsonObject one) {
    List<LookupInSpec> specs = new ArrayList<>();
    for (Object each : one.getArray("look")) {
      JsonObject spec = (JsonObject) each;
      String path = spec.getString("path");
      LookupInSpecStandard made =
          switch (spec.getString("op")) {
            case "get" -> LookupInSpec.get(path);
            case "exists" -> LookupInSpec.exists(path);
            case "count" -> LookupInSpec.count(path);
            default -> throw new AssertionError("there is no " + spec);
          };
      specs.add(spec.containsKey("xattr") ? made.xattr() : made);
    }
    return specs;
  }

  private static MutateInSpec changeSpec(JsonObject spec) {
    String path = spec.getString("path");
    Object value = spec.get("value");
    List<Object> values = spec.containsKey("values") ? spec.getArray("values").toList() : List.of();
    boolean parents = spec.containsKey("create");
    boolean xattr = spec.containsKey("xattr");
    switch (spec.getString("op")) {
      case "upsert" -> {
        var made = MutateInSpec.upsert(path, value);
        made = parents ? made.createPath() : made;
        return xattr ? made.xattr() : made;
      }
      case "insert" -> {
        var made = MutateInSpec.insert(path, value);
        made = parents ? made.createPath() : made;
        return xattr ? made.xattr() : made;
      }
      case "replace" -> {
        var made = MutateInSpec.replace(path, value);
        return xattr ? made.xattr() : made;
      }
      case "remove" -> {
        var made = MutateInSpec.remove(path);
        return xattr ? made.xattr() : made;
      }
      case "array-append" -> {
        var made = MutateInSpec.arrayAppend(path, values);
        made = parents ? made.createPath() : made;
        return xattr ? made.xattr() : made;
      }
      case "array-prepend" -> {
        var made = MutateInSpec.arrayPrepend(path, values);
        return xattr ? made.xattr() : made;
      }
      case "array-insert" -> {
        var made = MutateInSpec.arrayInsert(path, values);
        return xattr ? made.xattr() : made;
      }
      case "array-add-unique" -> {
        var made = MutateInSpec.arrayAddUnique(path, value);
        made = parents ? made.createPath() : made;
        return xattr ? made.xattr() : made;
      }
      case "increment", "decrement" -> {
        long delta = spec.getLong("delta");
        boolean isUp = spec.getString("op").equals("increment");
        var made = isUp ? MutateInSpec.increment(path, delta) : MutateInSpec.decrement(path, delta);
        made = parents ? made.createPath() : made;
        return xattr ? made.xattr() : made;
      }
      default -> throw new AssertionError("there is no " + spec);
    }
  }
}
