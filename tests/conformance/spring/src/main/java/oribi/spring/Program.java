package oribi.spring;

import com.couchbase.client.java.Cluster;
import com.couchbase.client.java.query.QueryScanConsistency;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeSet;
import java.util.stream.Stream;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.data.couchbase.core.CouchbaseTemplate;
import org.springframework.data.couchbase.core.query.Query;
import org.springframework.data.couchbase.core.query.QueryCriteria;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;

/**
 * Repositories of Spring Data Couchbase against a server.
 *
 * <p>Reads ORIBI_CONNSTR, ORIBI_USER and ORIBI_PASSWORD, and writes BEGIN, PASS and FAIL lines; see harness/steps.py.
 */
public final class Program {
  private interface Step {
    void run() throws Exception;
  }

  private final CustomerRepository customers;
  private final CouchbaseTemplate template;
  private final Cluster cluster;

  private Program(AnnotationConfigApplicationContext context) {
    customers = context.getBean(CustomerRepository.class);
    template = context.getBean(CouchbaseTemplate.class);
    cluster = context.getBean(Cluster.class);
  }

  public static void main(String[] arguments) {
    AnnotationConfigApplicationContext[] context = new AnnotationConfigApplicationContext[1];
    boolean connected =
        report("connect", () -> context[0] = new AnnotationConfigApplicationContext(Configuration.class));
    if (connected) {
      Program program = new Program(context[0]);
      Map<String, Step> steps = new LinkedHashMap<>();
      steps.put("automatic-indexes", program::automaticIndexes);
      steps.put("repository", program::repository);
      steps.put("derived-queries", program::derivedQueries);
      steps.put("paging", program::paging);
      steps.put("sorting", program::sorting);
      steps.put("statements", program::statements);
      steps.put("template", program::template);
      steps.put("deletes", program::deletes);
      steps.forEach(Program::report);
    }
    // The SDK's own threads must not keep the process alive after the last step.
    System.exit(0);
  }

  private void automaticIndexes() throws InterruptedException {
    Set<String> names = new TreeSet<>();
    // Spring Data asks for them and does not wait.
    for (int attempt = 0; attempt < 100 && names.size() < 2; attempt++) {
      names.clear();
      cluster.queryIndexes().getAllIndexes("default").forEach(index -> names.add(index.name() + ":" + index.state()));
      names.removeIf(name -> !name.endsWith(":online"));
      Thread.sleep(100);
    }
    equal(names.size(), 2);
  }

  private void repository() {
    customers.deleteAll();
    customers.saveAll(
        List.of(
            Customer.of("c1", "Ada", "London", 36, "maths", "poetry"),
            Customer.of("c2", "Grace", "New York", 85, "navy"),
            Customer.of("c3", "Alan", "London", 41, "maths"),
            Customer.of("c4", "Barbara", "Boston", 80),
            Customer.of("c5", "Edsger", "Rotterdam", 72, "maths", "bicycles")));
    equal(customers.count(), 5L);
    Customer ada = customers.findById("c1").orElseThrow();
    ada.isLoyal = true;
    customers.save(ada);
    equal(names(customers.findAll()), Set.of("Ada", "Grace", "Alan", "Barbara", "Edsger"));
    equal(names(customers.findAllById(List.of("c1", "c3", "missing"))), Set.of("Ada", "Alan"));
    // A version that a query returned is exact: a replace with it succeeds.
    Customer found = customers.findByName("Grace").orElseThrow();
    found.age = 86;
    customers.save(found);
    equal(customers.findById("c2").orElseThrow().age, 86);
    Customer stale = customers.findByName("Alan").orElseThrow();
    customers.save(customers.findById("c3").orElseThrow());
    fails(() -> customers.save(stale), org.springframework.dao.OptimisticLockingFailureException.class);
  }

  private void derivedQueries() {
    equal(names(customers.findByCity("London")), Set.of("Ada", "Alan"));
    equal(customers.findByName("nobody").isPresent(), false);
    equal(names(customers.findByCityAndAgeGreaterThan("London", 40)), Set.of("Alan"));
    equal(names(customers.findByCityOrAgeLessThanEqual("Boston", 36)), Set.of("Barbara", "Ada"));
    equal(ordered(customers.findByAgeBetweenOrderByAgeDesc(40, 80)), List.of("Barbara", "Edsger", "Alan"));
    equal(names(customers.findByNameIn(List.of("Ada", "Alan", "x"))), Set.of("Ada", "Alan"));
    equal(names(customers.findByNameNotIn(List.of("Ada", "Alan"))), Set.of("Grace", "Barbara", "Edsger"));
    equal(names(customers.findByNameStartingWith("A")), Set.of("Ada", "Alan"));
    equal(names(customers.findByNameEndingWith("a")), Set.of("Ada", "Barbara"));
    equal(names(customers.findByNameContaining("ar")), Set.of("Barbara"));
    equal(names(customers.findByNameLike("%a%")), Set.of("Ada", "Grace", "Alan", "Barbara"));
    equal(names(customers.findByNameNotLike("A%")), Set.of("Grace", "Barbara", "Edsger"));
    equal(names(customers.findByNameRegex("A.*n")), Set.of("Alan"));
    equal(names(customers.findByNameIgnoreCase("aDA")), Set.of("Ada"));
    equal(names(customers.findByCityNot("London")), Set.of("Grace", "Barbara", "Edsger"));
    equal(names(customers.findByIsLoyalTrue()), Set.of("Ada"));
    equal(names(customers.findByIsLoyalIsNotNull()), Set.of("Ada"));
    equal(ordered(customers.findTop2ByOrderByAgeAsc()), List.of("Ada", "Alan"));
    equal(customers.findFirstByCityOrderByAgeDesc("London").name, "Alan");
    equal(customers.countByCity("London"), 2L);
    equal(customers.existsByName("Ada"), true);
    equal(customers.existsByName("nobody"), false);
    try (Stream<Customer> stream = customers.streamByCity("London")) {
      equal(stream.count(), 2L);
    }
  }

  private void paging() {
    Page<Customer> first = customers.findByAgeGreaterThanEqual(36, PageRequest.of(0, 2, Sort.by("age")));
    equal(ordered(first.getContent()), List.of("Ada", "Alan"));
    equal(first.getTotalElements(), 5L);
    equal(first.getTotalPages(), 3);
    Page<Customer> last = customers.findByAgeGreaterThanEqual(36, PageRequest.of(2, 2, Sort.by("age")));
    equal(ordered(last.getContent()), List.of("Grace"));
    equal(last.hasNext(), false);
    Slice<Customer> slice = customers.findByAgeLessThan(80, PageRequest.of(0, 2, Sort.by("age")));
    equal(ordered(slice.getContent()), List.of("Ada", "Alan"));
    equal(slice.hasNext(), true);
    Page<Customer> all = customers.findAll(PageRequest.of(1, 3, Sort.by("name")));
    equal(ordered(all.getContent()), List.of("Edsger", "Grace"));
  }

  private void sorting() {
    equal(ordered(customers.findAll(Sort.by("name"))), List.of("Ada", "Alan", "Barbara", "Edsger", "Grace"));
    equal(ordered(customers.findAll(Sort.by(Sort.Order.asc("city"), Sort.Order.desc("age")))),
        List.of("Barbara", "Alan", "Ada", "Grace", "Edsger"));
    equal(ordered(customers.findByAgeGreaterThan(41, Sort.by(Sort.Direction.DESC, "name"))),
        List.of("Grace", "Edsger", "Barbara"));
  }

  private void statements() {
    equal(ordered(customers.cityAndTag("London", "maths")), List.of("Ada", "Alan"));
    equal(customers.countOlder(72), 3L);
    equal(customers.cities().toString(),
        "[CityCount[city=Boston, amount=1, age=80.0], CityCount[city=London, amount=2, age=38.5], "
            + "CityCount[city=New York, amount=1, age=86.0], CityCount[city=Rotterdam, amount=1, age=72.0]]");
  }

  private void template() {
    Query query = Query.query(QueryCriteria.where("age").gt(40).and("city").ne("Boston")).with(Sort.by("age"));
    List<Customer> found =
        template.findByQuery(Customer.class).withConsistency(QueryScanConsistency.REQUEST_PLUS).matching(query).all();
    equal(ordered(found), List.of("Alan", "Edsger", "Grace"));
    Query mathematicians = Query.query(QueryCriteria.where("tags").arrayContaining("maths"));
    equal(
        names(template.findByQuery(Customer.class).withConsistency(QueryScanConsistency.REQUEST_PLUS).matching(mathematicians).all()),
        Set.of("Ada", "Alan", "Edsger"));
    equal(
        template.findByQuery(Customer.class).withConsistency(QueryScanConsistency.REQUEST_PLUS).matching(mathematicians).count(),
        3L);
  }

  private void deletes() {
    equal(names(customers.removeOlder(85)), Set.of("Grace"));
    equal(customers.deleteByCity("London").size(), 2);
    equal(names(customers.findAll()), Set.of("Barbara", "Edsger"));
    customers.deleteAll();
    equal(customers.count(), 0L);
  }

  private static Set<String> names(Iterable<Customer> found) {
    return new TreeSet<>(ordered(found));
  }

  private static List<String> ordered(Iterable<Customer> found) {
    List<String> names = new ArrayList<>();
    found.forEach(each -> names.add(each.name));
    return names;
  }

  private static void equal(Object actual, Object expected) {
    if (!Objects.equals(actual, expected)) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }

  private static void fails(Runnable call, Class<? extends Exception> expected) {
    try {
      call.run();
    } catch (Exception thrown) {
      if (expected.isInstance(thrown)) {
        return;
      }
      throw thrown;
    }
    throw new AssertionError("expected " + expected + ", got a result");
  }

  private static boolean report(String name, Step step) {
    System.out.println("BEGIN " + name);
    try {
      step.run();
      System.out.println("PASS " + name);
      return true;
    } catch (Throwable failure) {
      failure.printStackTrace();
      String text = (failure.getClass().getSimpleName() + ": " + failure.getMessage()).replaceAll("\\s+", " ");
      System.out.println("FAIL " + name + " " + text.substring(0, Math.min(300, text.length())));
      return false;
    }
  }
}
