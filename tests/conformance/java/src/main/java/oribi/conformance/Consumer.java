package oribi.conformance;

import com.couchbase.client.dcp.Client;
import com.couchbase.client.dcp.config.CompressionMode;
import com.couchbase.client.dcp.config.DcpControl;
import com.couchbase.client.dcp.highlevel.CollectionCreated;
import com.couchbase.client.dcp.highlevel.CollectionDropped;
import com.couchbase.client.dcp.highlevel.DatabaseChangeListener;
import com.couchbase.client.dcp.highlevel.Deletion;
import com.couchbase.client.dcp.highlevel.DocumentChange;
import com.couchbase.client.dcp.highlevel.FailoverLog;
import com.couchbase.client.dcp.highlevel.FlowControlMode;
import com.couchbase.client.dcp.highlevel.Mutation;
import com.couchbase.client.dcp.highlevel.Rollback;
import com.couchbase.client.dcp.highlevel.ScopeCreated;
import com.couchbase.client.dcp.highlevel.ScopeDropped;
import com.couchbase.client.dcp.highlevel.SeqnoAdvanced;
import com.couchbase.client.dcp.highlevel.SnapshotDetails;
import com.couchbase.client.dcp.highlevel.SnapshotMarker;
import com.couchbase.client.dcp.highlevel.StreamEnd;
import com.couchbase.client.dcp.highlevel.StreamFailure;
import com.couchbase.client.dcp.highlevel.StreamOffset;
import com.couchbase.client.dcp.message.DcpSystemEvent;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.TimeUnit;

/**
 * A consumer of change streams with Couchbase's Java client, which writes everything that it hears into a journal.
 *
 * <p>Reads ORIBI_CONNSTR, ORIBI_USER, ORIBI_PASSWORD, ORIBI_BUCKET, ORIBI_JOURNAL and ORIBI_FILTER, goes on where the journal
 * ends, and runs until it is killed. It says READY when all streams are open. ORIBI_FILTER is empty, `legacy` (no
 * collections), `scope:ID` or `collections:ID,ID`, with ids in hexadecimal. Changes are held back until the server
 * has persisted them, as connectors do.
 */
public final class Consumer implements DatabaseChangeListener {
  /** The server has to wait for acknowledgements often, each time until everything is persisted. */
  private static final int WINDOW_BYTES = 1024 * 1024;
  private static final Duration READY = Duration.ofSeconds(60);
  private static final int PERSISTENCE_POLL_MS = 100;

  private final Journal journal;
  /** Newest history of each vbucket, and its snapshot; only the thread of the listener uses them. */
  private final Map<Integer, Long> histories = new HashMap<>();
  private final Map<Integer, SnapshotMarker> snapshots = new HashMap<>();

  private Consumer(Journal journal) {
    this.journal = journal;
  }

  public static void main(String[] arguments) throws Exception {
    Journal journal = new Journal(Path.of(System.getenv("ORIBI_JOURNAL")));
    Client client = client(System.getenv("ORIBI_FILTER"));
    client.listener(new Consumer(journal), FlowControlMode.AUTOMATIC);
    client.connect().block(READY);
    Map<Integer, StreamOffset> offsets = new HashMap<>();
    for (int vbucket = 0; vbucket < client.numPartitions(); vbucket++) {
      Journal.Position at = journal.position(vbucket);
      offsets.put(vbucket, new StreamOffset(at.uuid(), at.seqno(), new SnapshotMarker(at.start(), at.end()), 0));
    }
    try {
      client.resumeStreaming(offsets).block(READY);
    } catch (RuntimeException failure) {
      // Threads of the client would keep the process alive.
      failure.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
    System.out.println("READY");
    Thread.currentThread().join();
  }

  private static Client client(String filter) {
    String[] parts = filter.split(":");
    Client.Builder builder = Client.builder()
        .connectionString(System.getenv("ORIBI_CONNSTR"))
        .credentials(System.getenv("ORIBI_USER"), System.getenv("ORIBI_PASSWORD"))
        .bucket(System.getenv("ORIBI_BUCKET"))
        // The defaults of a few seconds are too short for a busy machine.
        .bootstrapTimeout(READY)
        .socketConnectTimeout(READY.toMillis())
        .userAgent("conformance", "1")
        .collectionsAware(!filter.equals("legacy"))
        .compression(CompressionMode.ENABLED)
        // Has no effect without times of deletion, which this client does not ask for.
        .controlParam(DcpControl.Names.ENABLE_EXPIRY_OPCODE, true)
        .flowControl(WINDOW_BYTES)
        .mitigateRollbacks(PERSISTENCE_POLL_MS, TimeUnit.MILLISECONDS);
    if (parts[0].equals("scope")) {
      builder.scopeId(Long.parseLong(parts[1], 16));
    } else if (parts[0].equals("collections")) {
      builder.collectionIds(Arrays.stream(parts[1].split(",")).mapToLong(id -> Long.parseLong(id, 16)).toArray());
    }
    return builder.build();
  }

  @Override
  public void onMutation(Mutation mutation) {
    change("mutation", mutation, mutation.getContent());
  }

  @Override
  public void onDeletion(Deletion deletion) {
    change(deletion.isDueToExpiration() ? "expiration" : "deletion", deletion, new byte[0]);
  }

  private void change(String kind, DocumentChange change, byte[] content) {
    HexFormat hex = HexFormat.of();
    byte[] key = change.getKey().getBytes(StandardCharsets.UTF_8);
    journal.moved(
        "change", change.getVbucket(), position(change.getOffset()), kind,
        Long.toHexString(change.getCollection().id()), hex.formatHex(key),
        Long.toUnsignedString(change.getCas()), hex.formatHex(content));
  }

  @Override
  public void onSeqnoAdvanced(SeqnoAdvanced advanced) {
    journal.moved("advanced", advanced.getVbucket(), position(advanced.getOffset()));
  }

  private static Journal.Position position(StreamOffset offset) {
    SnapshotMarker snapshot = offset.getSnapshot();
    return new Journal.Position(
        offset.getVbuuid(), offset.getSeqno(), snapshot.getStartSeqno(), snapshot.getEndSeqno());
  }

  @Override
  public void onCollectionCreated(CollectionCreated created) {
    event("collection-created", created, created.getManifestId(), created.getScopeId(), created.getCollectionId(),
        created.getCollectionName());
  }

  @Override
  public void onCollectionDropped(CollectionDropped dropped) {
    event("collection-dropped", dropped, dropped.getManifestId(), dropped.getScopeId(), dropped.getCollectionId(), "");
  }

  @Override
  public void onScopeCreated(ScopeCreated created) {
    event("scope-created", created, created.getManifestId(), created.getScopeId(), 0, created.getScopeName());
  }

  @Override
  public void onScopeDropped(ScopeDropped dropped) {
    event("scope-dropped", dropped, dropped.getManifestId(), dropped.getScopeId(), 0, "");
  }

  private void event(String kind, DcpSystemEvent event, long manifest, long scope, long collection, String name) {
    int vbucket = event.getVbucket();
    SnapshotMarker snapshot = snapshots.get(vbucket);
    Journal.Position at = new Journal.Position(
        histories.get(vbucket), event.getSeqno(), snapshot.getStartSeqno(), snapshot.getEndSeqno());
    journal.moved(
        "event", vbucket, at, kind, manifest, Long.toHexString(scope), Long.toHexString(collection), name);
  }

  @Override
  public void onSnapshot(SnapshotDetails details) {
    SnapshotMarker marker = details.getMarker();
    snapshots.put(details.getVbucket(), marker);
    journal.noted(
        "marker", details.getVbucket(), marker.getStartSeqno(), marker.getEndSeqno(), details.getFlagsAsInt());
  }

  @Override
  public void onFailoverLog(FailoverLog log) {
    long history = log.getEntries().get(0).getUuid();
    histories.put(log.getVbucket(), history);
    journal.noted("opened", log.getVbucket(), Long.toUnsignedString(history), journal.position(log.getVbucket()).seqno());
  }

  @Override
  public void onRollback(Rollback rollback) {
    int vbucket = rollback.getVbucket();
    long seqno = rollback.getSeqno();
    journal.moved(
        "rollback", vbucket, new Journal.Position(journal.position(vbucket).uuid(), seqno, seqno, seqno));
    rollback.resume();
  }

  @Override
  public void onStreamEnd(StreamEnd end) {
    journal.noted("ended", end.getVbucket(), end.getReason());
  }

  /** Ends the process, as a connector ends its task: whoever starts it again lets it go on where it was. */
  @Override
  public void onFailure(StreamFailure failure) {
    failure.getCause().printStackTrace();
    Runtime.getRuntime().halt(1);
  }
}
