package oribi.spring;

/** A row of a grouped statement. */
public record CityCount(String city, long amount, double age) {}
