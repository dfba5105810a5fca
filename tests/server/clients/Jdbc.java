// What a program in Java does with the PostgreSQL driver. Prints one line for each fact.

import java.math.BigDecimal;
import java.sql.*;
import java.util.*;

public class Jdbc {
    static void say(String what, Object value) {
        System.out.println(what + "=" + value);
    }

    static List<String> column(ResultSet rows, String name) throws SQLException {
        List<String> found = new ArrayList<>();
        while (rows.next()) found.add(rows.getString(name));
        return found;
    }

    public static void main(String[] arguments) throws Exception {
        String url = arguments[0];
        Properties login = new Properties();
        login.setProperty("user", arguments[1]);
        login.setProperty("password", arguments[2]);
        try (Connection connection = DriverManager.getConnection(url, login)) {
            metadata(connection.getMetaData());
        }
        for (String mode : List.of("simple", "extended", "extendedForPrepared")) {
            login.setProperty("preferQueryMode", mode);
            login.setProperty("prepareThreshold", "2");
            try (Connection connection = DriverManager.getConnection(url, login)) {
                parameters(connection, mode);
            }
        }
        login.remove("preferQueryMode");
        try (Connection connection = DriverManager.getConnection(url, login)) {
            types(connection);
            cursor(connection);
            cancel(connection, arguments[3]);
            errors(connection);
        }
    }

    static void metadata(DatabaseMetaData about) throws SQLException {
        say("product", about.getDatabaseProductName());
        say("tables", column(about.getTables(null, "public", "n%", new String[] {"TABLE"}), "TABLE_NAME"));
        say("views", column(about.getTables(null, "desk", "%", new String[] {"VIEW"}), "TABLE_NAME"));
        say("schemas", column(about.getSchemas(), "TABLE_SCHEM").contains("desk"));
        say("columns", column(about.getColumns(null, "public", "kinds", "%"), "TYPE_NAME"));
        say("keys", column(about.getPrimaryKeys(null, "public", "nation"), "COLUMN_NAME"));
        say("indexes", column(about.getIndexInfo(null, "public", "nation", false, true), "COLUMN_NAME"));
        say("imported", column(about.getImportedKeys(null, "public", "nation"), "FKCOLUMN_NAME"));
        say("catalogs", column(about.getCatalogs(), "TABLE_CAT"));
        say("types", column(about.getTypeInfo(), "TYPE_NAME").contains("numeric"));
        say("rights", column(about.getTablePrivileges(null, "public", "nation"), "PRIVILEGE").isEmpty());
        about.getFunctions(null, "public", "%").close();
        about.getProcedures(null, "public", "%").close();
        about.getTableTypes().close();
    }

    static void parameters(Connection connection, String mode) throws SQLException {
        String sql = "SELECT n_name FROM nation WHERE n_nationkey = ? AND n_name < ? AND n_nationkey <> ?";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            for (int key = 1; key < 5; key++) {
                statement.setInt(1, key);
                statement.setString(2, "Z");
                statement.setBigDecimal(3, new BigDecimal("99.5"));
                say(mode, column(statement.executeQuery(), "n_name"));
            }
        }
        String dates = "SELECT id FROM kinds WHERE day = ? AND moment = ? AND flag = ? AND raw = ?";
        try (PreparedStatement statement = connection.prepareStatement(dates)) {
            statement.setObject(1, java.time.LocalDate.of(2024, 2, 29));
            statement.setObject(2, java.time.LocalDateTime.of(2024, 2, 29, 12, 34, 56, 789012000));
            statement.setBoolean(3, true);
            // In simple mode the driver cannot write bytes.
            if (mode.equals("simple")) statement.setString(4, "\\x00ff5c");
            else statement.setBytes(4, new byte[] {0, (byte) 255, 92});
            say(mode, column(statement.executeQuery(), "id"));
        }
    }

    static void types(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement();
                ResultSet rows = statement.executeQuery("SELECT * FROM kinds ORDER BY id")) {
            rows.next();
            say("long", rows.getLong("big"));
            say("decimal", rows.getBigDecimal("money"));
            say("array", Arrays.toString((Object[]) rows.getArray("numbers").getArray()));
            say("instant", rows.getObject("instant", java.time.OffsetDateTime.class).toInstant());
            say("type", rows.getMetaData().getColumnTypeName(8) + rows.getMetaData().getPrecision(8));
            rows.next();
            rows.next();
            rows.getInt("small");
            say("null", rows.wasNull());
        }
    }

    static void cursor(Connection connection) throws SQLException {
        connection.setAutoCommit(false);
        String sql = "SELECT o_orderkey FROM orders WHERE o_orderkey < ?";
        try (PreparedStatement statement = connection.prepareStatement(sql)) {
            statement.setFetchSize(300);
            statement.setLong(1, 4000);
            say("fetched", column(statement.executeQuery(), "o_orderkey").size());
        }
        connection.commit();
        connection.setAutoCommit(true);
    }

    static void cancel(Connection connection, String endless) throws Exception {
        try (Statement statement = connection.createStatement()) {
            statement.setQueryTimeout(1);
            statement.executeQuery(endless);
        } catch (SQLException error) {
            say("timeout", error.getSQLState());
        }
        try (Statement statement = connection.createStatement()) {
            Thread thread = new Thread(() -> {
                try {
                    Thread.sleep(1000);
                    statement.cancel();
                } catch (Exception error) {
                    say("cancelling", error);
                }
            });
            thread.start();
            statement.executeQuery(endless);
        } catch (SQLException error) {
            say("cancelled", error.getSQLState());
        }
    }

    static void errors(Connection connection) throws SQLException {
        try (Statement statement = connection.createStatement()) {
            statement.executeQuery("SELECT nope FROM nation");
        } catch (SQLException error) {
            say("error", error.getSQLState());
        }
        say("valid", connection.isValid(5));
    }
}
