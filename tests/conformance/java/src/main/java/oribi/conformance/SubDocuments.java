package oribi.conformance;

import static com.couchbase.client.java.kv.GetOptions.getOptions;
import static com.couchbase.client.java.kv.LookupInOptions.lookupInOptions;
import static com.couchbase.client.java.kv.MutateInOptions.mutateInOptions;
import static com.couchbase.client.java.kv.ReplaceOptions.replaceOptions;
import static com.couchbase.client.java.kv.UpsertOptions.upsertOptions;
import static oribi.conformance.Checks.check;
import static oribi.conformance.Checks.equal;
import static oribi.conformance.Checks.fails;
import static oribi.conformance.SubDocumentCases.compare;

import com.couchbase.client.core.error.CasMismatchException;
import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.core.error.InvalidArgumentException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonArray;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.GetResult;
import com.couchbase.client.java.kv.LookupInMacro;
import com.couchbase.client.java.kv.LookupInOptions;
import com.couchbase.client.java.kv.LookupInResult;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.kv.MutateInMacro;
import com.couchbase.client.java.kv.MutateInResult;
import com.couchbase.client.java.kv.MutateInSpec;
import com.couchbase.client.java.kv.MutationResult;
import com.couchbase.client.java.kv.StoreSemantics;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.function.Supplier;

/** Parts of documents, and attributes beside them: what {@link SubDocumentCases} cannot say. */
final class SubDocuments {
  private static final int SPECS_MAX = 16;
  private static final Duration DAY = Duration.ofDays(1);

  /** Of the document [7], as the server writes it. */
  private static final String CRC_32C_OF_SEVEN = "0xd1f2ed59";

  private final Steps steps;

  SubDocuments(Steps steps) {
    this.steps = steps;
  }

  private Collection collection() {
    return steps.collection;
  }

  /** The cases, and the limit of paths in a request. */
  String lookUpIn() throws Exception {
    collection().upsert("limit", JsonObject.create().put("a", 1));
    LookupInResult found = collection().lookupIn("limit", Collections.nCopies(SPECS_MAX, LookupInSpec.get("a")));
    for (int index = 0; index < SPECS_MAX; index++) {
      compare(found, index, 1);
    }
    fails(
        () -> collection().lookupIn("limit", Collections.nCopies(SPECS_MAX + 1, LookupInSpec.get("a"))),
        InvalidArgumentException.class);
    return new SubDocumentCases(collection()).run(false);
  }

  /** The cases, the limit of paths in a request, and CAS. */
  String mutateIn() throws Exception {
    long old = collection().upsert("limit", JsonObject.create().put("n", 0)).cas();
    List<MutateInSpec> specs = Collections.nCopies(SPECS_MAX + 1, MutateInSpec.increment("n", 1));
    fails(() -> collection().mutateIn("limit", specs), InvalidArgumentException.class);
    MutateInResult done = collection().mutateIn("limit", specs.subList(1, SPECS_MAX + 1), mutateInOptions().cas(old));
    check(done.cas() != old, "a new CAS");
    equal(collection().get("limit").contentAsObject(), JsonObject.create().put("n", SPECS_MAX));
    fails(
        () -> collection().mutateIn("limit", specs.subList(0, 1), mutateInOptions().cas(old)),
        CasMismatchException.class);
    equal(collection().get("limit").cas(), done.cas());
    return new SubDocumentCases(collection()).run(true);
  }

  /** What the server fills in: written as an attribute, and read as a virtual one. */
  String macros() {
    collection().upsert("macros", JsonArray.from(7), upsertOptions().expiry(DAY));
    MutateInResult done =
        collection()
            .mutateIn(
                "macros",
                List.of(
                    MutateInSpec.upsert("x.cas", MutateInMacro.CAS).xattr().createPath(),
                    MutateInSpec.upsert("x.seqno", MutateInMacro.SEQ_NO).xattr(),
                    MutateInSpec.upsert("x.crc", MutateInMacro.VALUE_CRC_32C).xattr()),
                mutateInOptions().preserveExpiry(true));
    long seqno = done.mutationToken().orElseThrow().sequenceNumber();
    List<String> paths =
        List.of(
            "x", LookupInMacro.DOCUMENT, LookupInMacro.CAS, LookupInMacro.SEQ_NO, LookupInMacro.EXPIRY_TIME,
            LookupInMacro.IS_DELETED, LookupInMacro.VALUE_SIZE_BYTES, LookupInMacro.LAST_MODIFIED, LookupInMacro.REV_ID,
            LookupInMacro.FLAGS);
    List<LookupInSpec> specs = new ArrayList<>();
    paths.forEach(path -> specs.add(LookupInSpec.get(path).xattr()));
    LookupInResult found = collection().lookupIn("macros", specs);
    JsonObject written = found.contentAsObject(0);
    equal(Long.reverseBytes(hexadecimal(written.getString("cas"))), done.cas());
    equal(hexadecimal(written.getString("seqno")), seqno);
    equal(written.getString("crc"), CRC_32C_OF_SEVEN);
    JsonObject about = found.contentAsObject(1);
    equal(hexadecimal(about.getString("CAS")), done.cas());
    equal(found.contentAs(2, String.class), about.getString("CAS"));
    equal(hexadecimal(found.contentAs(3, String.class)), seqno);
    equal(about.getString("seqno"), found.contentAs(3, String.class));
    check(found.contentAs(4, Long.class) > 0, "an expiry");
    equal(about.getLong("exptime"), found.contentAs(4, Long.class));
    equal(found.contentAs(5, Boolean.class), false);
    equal(found.contentAs(6, Integer.class), "[7]".length());
    equal(about.getInt("value_bytes"), "[7]".length());
    check(Long.parseLong(found.contentAs(7, String.class)) > 0, "a time");
    check(Long.parseLong(found.contentAs(8, String.class)) > 1, "a second revision");
    equal(about.getLong("flags"), found.contentAs(9, Long.class));
    equal(about.getString("value_crc32c"), CRC_32C_OF_SEVEN);
    return null;
  }

  private static long hexadecimal(String text) {
    return Long.parseUnsignedLong(text.substring(2), 16);
  }

  /** Attributes that outlive their document, and a document that never lived. */
  String deletedDocuments() {
    LookupInOptions deleted = lookupInOptions().accessDeleted(true);
    List<LookupInSpec> sync = List.of(LookupInSpec.get("_sync.r").xattr());
    collection()
        .mutateIn(
            "ghost",
            List.of(MutateInSpec.upsert("_sync", JsonObject.create().put("r", 1)).xattr()),
            mutateInOptions().storeSemantics(StoreSemantics.INSERT).accessDeleted(true).createAsDeleted(true));
    fails(() -> collection().get("ghost"), DocumentNotFoundException.class);
    fails(() -> collection().lookupIn("ghost", sync), DocumentNotFoundException.class);
    equal(collection().exists("ghost").exists(), false);
    LookupInResult found = collection().lookupIn("ghost", sync, deleted);
    compare(found, 0, 1);
    equal(found.isDeleted(), true);
    List<MutateInSpec> count = List.of(MutateInSpec.increment("_sync.r", 1).xattr());
    collection().mutateIn("ghost", count, mutateInOptions().accessDeleted(true));
    compare(collection().lookupIn("ghost", sync, deleted), 0, 2);
    revive(sync);

    collection().upsert("removed", JsonObject.create());
    for (String name : List.of("_system", "user")) {
      collection().mutateIn("removed", List.of(MutateInSpec.upsert(name, 1).xattr()));
    }
    collection().remove("removed");
    compare(collection().lookupIn("removed", List.of(LookupInSpec.get("_system").xattr()), deleted), 0, 1);
    compare(
        collection().lookupIn("removed", List.of(LookupInSpec.get("user").xattr()), deleted), 0, "!path-not-found");
    return null;
  }

  /** Only this SDK can bring a deleted document back with its attributes. */
  private void revive(List<LookupInSpec> sync) {
    collection()
        .mutateIn(
            "ghost",
            List.of(MutateInSpec.upsert("_sync.r", 3).xattr(), MutateInSpec.replace("", JsonObject.create().put("a", 1))),
            mutateInOptions().storeSemantics(StoreSemantics.REVIVE).accessDeleted(true));
    equal(collection().get("ghost").contentAsObject(), JsonObject.create().put("a", 1));
    compare(collection().lookupIn("ghost", sync), 0, 3);
  }

  String projections() {
    JsonObject document =
        JsonObject.create().put("n", 41).put("a", JsonObject.create().put("b", JsonArray.from(1, 2)).put("c", 3));
    JsonObject expected = JsonObject.create().put("n", 41);
    List<String> fields = new ArrayList<>(List.of("n"));
    for (int number = 0; number < SPECS_MAX; number++) {
      String name = "f" + number;
      document.put(name, number);
      expected.put(name, number);
      fields.add(name);
    }
    MutationResult stored = collection().upsert("projections", document, upsertOptions().expiry(DAY));
    GetResult got = collection().get("projections", getOptions().project("n", "a.b", "nothing"));
    equal(
        got.contentAsObject(),
        JsonObject.create().put("n", 41).put("a", JsonObject.create().put("b", JsonArray.from(1, 2))));
    equal(got.cas(), stored.cas());
    // More fields than a request has paths: the SDK refuses.
    fails(
        () -> collection().get("projections", getOptions().project(fields)), InvalidArgumentException.class);
    List<String> some = fields.subList(0, SPECS_MAX);
    expected.removeKey(fields.get(SPECS_MAX));
    equal(collection().get("projections", getOptions().project(some)).contentAsObject(), expected);
    got = collection().get("projections", getOptions().project("n").withExpiry(true));
    equal(got.contentAsObject(), JsonObject.create().put("n", 41));
    check(got.expiryTime().isPresent(), "an expiry beside a projection");
    fails(() -> collection().get("never-written", getOptions().project("n")), DocumentNotFoundException.class);
    return null;
  }

  String preserveExpiry() {
    Supplier<Optional<Instant>> expiry =
        () -> collection().get("preserved", getOptions().withExpiry(true)).expiryTime();
    JsonObject document = JsonObject.create().put("n", 1);
    collection().upsert("preserved", document, upsertOptions().expiry(DAY));
    Optional<Instant> first = expiry.get();
    check(first.isPresent(), "an expiry");
    collection().upsert("preserved", document, upsertOptions().preserveExpiry(true));
    equal(expiry.get(), first);
    collection().replace("preserved", document, replaceOptions().preserveExpiry(true));
    equal(expiry.get(), first);
    collection().mutateIn("preserved", List.of(MutateInSpec.upsert("n", 4)), mutateInOptions().preserveExpiry(true));
    equal(expiry.get(), first);
    Duration later = DAY.multipliedBy(2);
    collection().mutateIn("preserved", List.of(MutateInSpec.upsert("n", 5)), mutateInOptions().expiry(later));
    check(expiry.get().orElseThrow().isAfter(first.orElseThrow()), "a later expiry");
    collection().upsert("preserved", document);
    equal(expiry.get(), Optional.empty());
    return null;
  }
}
