package oribi.conformance;

import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.io.UncheckedIOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.Arrays;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.Map;

/**
 * A file with a line for each thing that a stream said, and so the state of the consumer, too.
 *
 * <p>See python/journals.py for the lines. A line that a killed consumer did not finish is cut off.
 */
final class Journal {
  /** Where a stream goes on: the last change that was seen, and the snapshot that it is part of. */
  record Position(long uuid, long seqno, long start, long end) {
    static final Position BEGINNING = new Position(0, 0, 0, 0);
  }

  private static final Set<String> MOVES = Set.of("change", "event", "advanced", "rollback");
  private final Map<Integer, Position> positions = new ConcurrentHashMap<>();
  private final OutputStream out;

  Journal(Path path) throws IOException {
    byte[] content = Files.exists(path) ? Files.readAllBytes(path) : new byte[0];
    int length = content.length;
    while (length > 0 && content[length - 1] != '\n') {
      length--;
    }
    new String(content, 0, length, StandardCharsets.UTF_8).lines().forEach(this::resume);
    FileChannel file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.WRITE);
    file.truncate(length);
    file.position(length);
    out = new BufferedOutputStream(Channels.newOutputStream(file), 64 * 1024);
    Thread flusher = new Thread(this::flush, "flusher");
    flusher.setDaemon(true);
    flusher.start();
  }

  /** Takes the position from a line that has one. */
  private void resume(String line) {
    String[] fields = line.split("\t");
    if (MOVES.contains(fields[0])) {
      long[] numbers = Arrays.stream(fields, 1, 6).mapToLong(Long::parseUnsignedLong).toArray();
      positions.put((int) numbers[0], new Position(numbers[1], numbers[2], numbers[3], numbers[4]));
    }
  }

  Position position(int vbucket) {
    return positions.getOrDefault(vbucket, Position.BEGINNING);
  }

  /** Writes a line that moves the position of a vbucket. */
  void moved(String word, int vbucket, Position at, Object... rest) {
    positions.put(vbucket, at);
    StringBuilder line = new StringBuilder(word).append('\t').append(vbucket);
    for (long number : new long[] {at.uuid, at.seqno, at.start, at.end}) {
      line.append('\t').append(Long.toUnsignedString(number));
    }
    write(line, rest);
  }

  /** Writes a line that moves nothing. */
  void noted(String word, int vbucket, Object... rest) {
    write(new StringBuilder(word).append('\t').append(vbucket), rest);
  }

  private void write(StringBuilder line, Object... rest) {
    for (Object each : rest) {
      line.append('\t').append(each);
    }
    byte[] bytes = line.append('\n').toString().getBytes(StandardCharsets.UTF_8);
    synchronized (this) {
      try {
        out.write(bytes);
      } catch (IOException failure) {
        throw new UncheckedIOException(failure);
      }
    }
  }

  private void flush() {
    try {
      while (true) {
        Thread.sleep(20);
        synchronized (this) {
          out.flush();
        }
      }
    } catch (IOException | InterruptedException failure) {
      failure.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
  }
}
