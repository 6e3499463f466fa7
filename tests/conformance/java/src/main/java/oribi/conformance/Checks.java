package oribi.conformance;

import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Objects;

/** Expectations, and waiting with a deadline. */
final class Checks {
  private Checks() {}

  static void check(boolean condition, String what) {
    if (!condition) {
      throw new AssertionError("expected: " + what);
    }
  }

  static void equal(Object actual, Object expected) {
    check(Objects.deepEquals(actual, expected), expected + ", got " + actual);
  }

  /** Runs a call that must be refused with one of these classes, and returns the refusal. */
  @SafeVarargs
  static Throwable fails(Runnable call, Class<? extends Throwable>... expected) {
    try {
      call.run();
    } catch (Throwable thrown) {
      if (Arrays.stream(expected).anyMatch(each -> each.isInstance(thrown))) {
        return thrown;
      }
      throw new AssertionError("expected " + Arrays.toString(expected) + ", got " + thrown, thrown);
    }
    throw new AssertionError("expected " + Arrays.toString(expected) + ", got a result");
  }

  /** Repeats a call until it succeeds, for half a minute, past errors that time heals. */
  static void eventually(Runnable call, List<Class<? extends RuntimeException>> transients)
      throws InterruptedException {
    long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
    while (true) {
      try {
        call.run();
        return;
      } catch (RuntimeException thrown) {
        if (transients.stream().noneMatch(each -> each.isInstance(thrown)) || System.nanoTime() > deadline) {
          throw thrown;
        }
        Thread.sleep(100);
      }
    }
  }
}
