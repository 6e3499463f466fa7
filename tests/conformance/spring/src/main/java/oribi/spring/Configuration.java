package oribi.spring;

import org.springframework.data.couchbase.config.AbstractCouchbaseConfiguration;
import org.springframework.data.couchbase.repository.config.EnableCouchbaseRepositories;

/** The configuration that Spring Data's manual teaches. */
@org.springframework.context.annotation.Configuration
@EnableCouchbaseRepositories(basePackageClasses = CustomerRepository.class)
public class Configuration extends AbstractCouchbaseConfiguration {
  @Override
  public String getConnectionString() {
    return System.getenv("ORIBI_CONNSTR");
  }

  @Override
  public String getUserName() {
    return System.getenv("ORIBI_USER");
  }

  @Override
  public String getPassword() {
    return System.getenv("ORIBI_PASSWORD");
  }

  @Override
  public String getBucketName() {
    return "default";
  }

  @Override
  protected boolean autoIndexCreation() {
    return true;
  }
}
