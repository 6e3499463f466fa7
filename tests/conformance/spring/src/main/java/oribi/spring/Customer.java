package oribi.spring;

import java.util.List;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.Version;
import org.springframework.data.couchbase.core.index.CompositeQueryIndex;
import org.springframework.data.couchbase.core.index.QueryIndexed;
import org.springframework.data.couchbase.core.mapping.Document;
import org.springframework.data.couchbase.core.mapping.Field;

/** A document with automatic indexes, on one field and on two. */
@Document
@CompositeQueryIndex(fields = {"city", "age desc"})
public class Customer {
  @Id public String id;
  @Version public long version;
  @QueryIndexed public String name;
  public String city;
  public int age;

  @Field("loyal")
  public Boolean isLoyal;

  public List<String> tags;

  public static Customer of(String id, String name, String city, int age, String... tags) {
    Customer made = new Customer();
    made.id = id;
    made.name = name;
    made.city = city;
    made.age = age;
    made.tags = List.of(tags);
    return made;
  }
}
