package oribi.conformance;

import com.couchbase.client.core.msg.kv.DurabilityLevel;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;

/**
 * The conformance steps with the Couchbase Java SDK.
 *
 * <p>Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_CONTROL, ORIBI_STEPS, ORIBI_SUB_DOCUMENTS,
 * ORIBI_BUCKET and ORIBI_REPLICAS, and writes BEGIN, PASS and FAIL lines; see harness/steps.py. This class owns the order of the steps, {@link Steps}
 * what they do, {@link SubDocuments} those about parts of documents, {@link ManySteps} the two that run many
 * operations at once, and {@link Checks} what a failed expectation is.
 */
public final class Program {
  /** One step; it returns the detail to print, or null. */
  interface Step {
    String run() throws Exception;
  }

  public static void main(String[] arguments) {
    Steps steps = new Steps();
    SubDocuments parts = new SubDocuments(steps);
    ManySteps many = new ManySteps(steps);
    Map<String, Step> all = new LinkedHashMap<>();
    all.put("connect", steps::connect);
    all.put("crud", steps::crud);
    all.put("not-found", steps::notFound);
    all.put("exists", steps::exists);
    all.put("cas-mismatch", steps::casMismatch);
    all.put("counters", steps::counters);
    all.put("append-prepend", steps::appendPrepend);
    all.put("expiry", steps::expiry);
    all.put("touch", steps::touch);
    all.put("get-and-touch", steps::getAndTouch);
    Replicas replicas = new Replicas(steps);
    all.put("durability", steps::durability);
    all.put("observed-durability", replicas::observedDurability);
    all.put("mutation-tokens", steps::mutationTokens);
    all.put("look-up-in", parts::lookUpIn);
    all.put("mutate-in", parts::mutateIn);
    all.put("macros", parts::macros);
    all.put("deleted-documents", parts::deletedDocuments);
    all.put("projections", parts::projections);
    all.put("preserve-expiry", parts::preserveExpiry);
    all.put("replicas", replicas::replicas);
    all.put("locks", new Locks(steps)::locks);
    all.put("compression", new Compression(steps)::compression);
    all.put("rights", new Rights(steps)::rights);
    all.put("scans", new Scans(steps)::scans);
    all.put("collections", steps::collections);
    Managers managers = new Managers(steps);
    all.put("users", managers::users);
    all.put("buckets", managers::buckets);
    all.put("document-20-mib", steps::document20MiB);
    all.put("too-large", steps::tooLarge);
    all.put("wrong-password", steps::wrongPassword);
    all.put("parallel-50000", many::parallel50000);
    all.put("kill-restart", many::killRestart);
    Nodes nodes = new Nodes(steps);
    for (String step : List.of("join", "kill", "new-client", "return", "kill-again", "return-again", "leave")) {
      all.put(step, () -> nodes.change(step));
    }
    all.put("new-client", nodes::newClient);
    TransactionSteps transactions = new TransactionSteps(steps);
    all.put("commit", transactions::commit);
    all.put("roll-back", transactions::rollBack);
    all.put("conflicts", transactions::conflicts);
    all.put("staged-reads", transactions::stagedReads);
    all.put("binary", transactions::binary);
    Transfers transfers = new Transfers(steps);
    all.put("transfers-none", () -> transfers.transfers(DurabilityLevel.NONE));
    all.put("transfers-majority", () -> transfers.transfers(DurabilityLevel.MAJORITY));
    all.put("transfers-persist", () -> transfers.transfers(DurabilityLevel.PERSIST_TO_MAJORITY));
    all.put("transfers-killed", transfers::killed);
    all.put("transfers-lost", transfers::lost);
    Queries queries = new Queries(steps);
    all.put("query-rows", queries::rows);
    all.put("query-parameters", queries::parameters);
    all.put("query-prepared", queries::prepared);
    all.put("query-consistency", queries::consistency);
    all.put("query-errors", queries::errors);
    all.put("query-indexes", queries::indexes);
    all.put("query-streaming", queries::streaming);
    all.keySet().retainAll(Set.of(System.getenv("ORIBI_STEPS").split(",")));
    for (Map.Entry<String, Step> step : all.entrySet()) {
      // Without a connection every other step fails in the same way.
      if (!report(step.getKey(), step.getValue()) && step.getKey().equals("connect")) {
        break;
      }
    }
    steps.close();
    // The SDK's own threads must not keep the process alive after the last step.
    System.exit(0);
  }

  private static boolean report(String name, Step step) {
    System.out.println("BEGIN " + name);
    try {
      String detail = step.run();
      System.out.println("PASS " + name + " " + (detail == null ? "" : detail));
      return true;
    } catch (Throwable failure) {
      failure.printStackTrace();
      String text = (failure.getClass().getSimpleName() + ": " + failure.getMessage()).replaceAll("\\s+", " ");
      System.out.println("FAIL " + name + " " + text.substring(0, Math.min(300, text.length())));
      return false;
    }
  }
}
