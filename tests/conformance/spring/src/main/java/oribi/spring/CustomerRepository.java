package oribi.spring;

import com.couchbase.client.java.query.QueryScanConsistency;
import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.springframework.data.couchbase.core.RemoveResult;
import org.springframework.data.couchbase.repository.CouchbaseRepository;
import org.springframework.data.couchbase.repository.Query;
import org.springframework.data.couchbase.repository.ScanConsistency;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;
import org.springframework.data.repository.query.Param;

/** Queries that Spring Data derives from names, and statements. */
@ScanConsistency(query = QueryScanConsistency.REQUEST_PLUS)
public interface CustomerRepository extends CouchbaseRepository<Customer, String> {
  List<Customer> findByCity(String city);

  Optional<Customer> findByName(String name);

  List<Customer> findByCityAndAgeGreaterThan(String city, int age);

  List<Customer> findByCityOrAgeLessThanEqual(String city, int age);

  List<Customer> findByAgeBetweenOrderByAgeDesc(int from, int to);

  List<Customer> findByNameIn(Collection<String> names);

  List<Customer> findByNameNotIn(Collection<String> names);

  List<Customer> findByNameStartingWith(String prefix);

  List<Customer> findByNameEndingWith(String suffix);

  List<Customer> findByNameContaining(String part);

  List<Customer> findByNameLike(String pattern);

  List<Customer> findByNameNotLike(String pattern);

  List<Customer> findByNameRegex(String expression);

  List<Customer> findByNameIgnoreCase(String name);

  List<Customer> findByCityNot(String city);

  List<Customer> findByIsLoyalTrue();

  List<Customer> findByIsLoyalIsNull();

  List<Customer> findByIsLoyalIsNotNull();

  List<Customer> findTop2ByOrderByAgeAsc();

  Customer findFirstByCityOrderByAgeDesc(String city);

  Page<Customer> findByAgeGreaterThanEqual(int age, Pageable pageable);

  Slice<Customer> findByAgeLessThan(int age, Pageable pageable);

  List<Customer> findByAgeGreaterThan(int age, Sort sort);

  long countByCity(String city);

  boolean existsByName(String name);

  List<RemoveResult> deleteByCity(String city);

  Stream<Customer> streamByCity(String city);

  @Query("#{#n1ql.selectEntity} WHERE #{#n1ql.filter} AND city = $1 AND ANY t IN tags SATISFIES t = $2 END ORDER BY age")
  List<Customer> cityAndTag(String city, String tag);

  @Query("SELECT COUNT(*) AS count FROM #{#n1ql.bucket} WHERE #{#n1ql.filter} AND age >= $least")
  Long countOlder(@Param("least") int least);

  @Query("SELECT \"\" AS __id, 0 AS __cas, city, COUNT(*) AS amount, AVG(age) AS age FROM #{#n1ql.bucket} WHERE #{#n1ql.filter} GROUP BY city ORDER BY city")
  List<CityCount> cities();

  @Query("#{#n1ql.delete} WHERE #{#n1ql.filter} AND age > $1 #{#n1ql.returning}")
  List<Customer> removeOlder(int age);
}
