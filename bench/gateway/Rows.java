import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.ResultSet;
import java.sql.Statement;

/** Reads all rows of a query by JDBC, once for each line that is given, and tells how many there were. */
public class Rows {
  public static void main(String[] arguments) throws Exception {
    String url = arguments[0], user = arguments[1], first = arguments[2], query = arguments[3];
    int fetched = Integer.parseInt(arguments[4]);
    try (Connection connection = DriverManager.getConnection(url, user, "")) {
      // Otherwise PostgreSQL's driver holds all rows before it gives the first.
      connection.setAutoCommit(url.startsWith("jdbc:hive2"));
      try (Statement statement = connection.createStatement()) {
        statement.setFetchSize(fetched);
        if (!first.isEmpty()) {
          statement.execute(first);
        }
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        while (lines.readLine() != null) {
          long rows = 0;
          try (ResultSet found = statement.executeQuery(query)) {
            int columns = found.getMetaData().getColumnCount();
            while (found.next()) {
              for (int column = 1; column <= columns; column++) {
                found.getObject(column);
              }
              rows++;
            }
          }
          System.out.println("{\"rows\": " + rows + "}");
        }
      }
    }
  }
}
