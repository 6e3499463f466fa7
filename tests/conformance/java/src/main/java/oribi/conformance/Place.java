package oribi.conformance;

import static oribi.conformance.Checks.check;

import com.couchbase.client.core.error.DocumentNotFoundException;
import com.couchbase.client.java.Collection;
import com.couchbase.client.java.json.JsonObject;
import com.couchbase.client.java.kv.LookupInOptions;
import com.couchbase.client.java.kv.LookupInSpec;
import com.couchbase.client.java.transactions.TransactionAttemptContext;
import com.couchbase.client.java.transactions.TransactionGetResult;
import java.util.ArrayList;
import java.util.List;

/** A document of a transaction, in one of several collections; all it has is a number. */
record Place(Collection collection, String key) {
  static JsonObject value(int number) {
    return JsonObject.create().put("n", number);
  }

  /** What a client without a transaction reads; null when there is no document. */
  Integer plain() {
    try {
      return collection.get(key).contentAsObject().getInt("n");
    } catch (DocumentNotFoundException absent) {
      return null;
    }
  }

  /** The same inside a transaction. */
  Integer read(TransactionAttemptContext attempt) {
    try {
      return attempt.get(collection, key).contentAsObject().getInt("n");
    } catch (DocumentNotFoundException absent) {
      return null;
    }
  }

  void upsert(int number) {
    collection.upsert(key, value(number));
  }

  TransactionGetResult insert(TransactionAttemptContext attempt, int number) {
    return attempt.insert(collection, key, value(number));
  }

  TransactionGetResult replace(TransactionAttemptContext attempt, int number) {
    return attempt.replace(attempt.get(collection, key), value(number));
  }

  void add(TransactionAttemptContext attempt, int number) {
    TransactionGetResult got = attempt.get(collection, key);
    attempt.replace(got, value(got.contentAsObject().getInt("n") + number));
  }

  void remove(TransactionAttemptContext attempt) {
    attempt.remove(attempt.get(collection, key));
  }

  static List<Integer> plains(Place... places) {
    List<Integer> values = new ArrayList<>();
    for (Place each : places) {
      values.add(each.plain());
    }
    return values;
  }

  static List<Integer> reads(TransactionAttemptContext attempt, Place... places) {
    List<Integer> values = new ArrayList<>();
    for (Place each : places) {
      values.add(each.read(attempt));
    }
    return values;
  }

  /** No transaction has left anything, be the documents alive or deleted. */
  static void nothingStaged(Place... places) {
    for (Place each : places) {
      try {
        var found =
            each.collection.lookupIn(
                each.key,
                List.of(LookupInSpec.exists("txn").xattr()),
                LookupInOptions.lookupInOptions().accessDeleted(true));
        check(!found.exists(0), "nothing is staged in " + each.key);
      } catch (DocumentNotFoundException absent) {
        // Nothing is there, not even as a deleted one.
      }
    }
  }
}
