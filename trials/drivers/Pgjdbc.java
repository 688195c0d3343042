// pgjdbc: statements that become prepared ones with binary values, a batch, and COPY.
import java.io.StringReader;
import java.sql.*;
import java.util.UUID;
import org.postgresql.PGConnection;

public class Pgjdbc {
    public static void main(String[] a) throws Exception {
        String url = "jdbc:postgresql://" + a[0] + ":" + a[1] + "/" + a[2] + "?sslmode=disable&prepareThreshold=2";
        try (Connection connection = DriverManager.getConnection(url, a[3], a[4])) {
            connection.setAutoCommit(false);
            String sql = "INSERT INTO typed (id, i2, i4, i8, f4, f8, n, b, t, bytes, d, ts, u, ai, at, m, jb)"
                + " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?::mood,?::jsonb)";
            try (PreparedStatement insert = connection.prepareStatement(sql)) {
                for (int id = 0; id < 6; id++) {
                    insert.setInt(1, id);
                    insert.setShort(2, (short) -2);
                    insert.setInt(3, 1 << 30);
                    insert.setLong(4, 1L << 40);
                    insert.setFloat(5, 0.5f);
                    insert.setDouble(6, 0.1);
                    insert.setBigDecimal(7, new java.math.BigDecimal("-12345.670"));
                    insert.setBoolean(8, true);
                    insert.setString(9, "it's \\ ä");
                    insert.setBytes(10, new byte[] {0, -1, 92});
                    insert.setDate(11, Date.valueOf("2026-02-28"));
                    insert.setTimestamp(12, Timestamp.valueOf("2026-11-27 01:02:03.000004"));
                    insert.setObject(13, new UUID(1, 2));
                    insert.setArray(14, connection.createArrayOf("int4", new Integer[] {1, null, -3}));
                    insert.setArray(15, connection.createArrayOf("text", new String[] {"a\"b", ""}));
                    insert.setString(16, "happy");
                    insert.setString(17, "{\"b\": [2]}");
                    insert.executeUpdate();
                    connection.commit();
                }
            }
            try (PreparedStatement batch = connection.prepareStatement("INSERT INTO typed (id, f8) VALUES (?, ?)")) {
                for (int id = 10; id < 40; id++) {
                    batch.setInt(1, id);
                    batch.setDouble(2, id / 3.0);
                    batch.addBatch();
                }
                batch.executeBatch();
                connection.commit();
            }
            var copying = connection.unwrap(PGConnection.class).getCopyAPI();
            copying.copyIn("COPY typed (id, t) FROM STDIN", new StringReader("50\tfifty\n51\t\\N\n"));
            connection.commit();
            connection.setAutoCommit(true);
            try (PreparedStatement update = connection.prepareStatement("UPDATE typed SET i4 = ? WHERE id = ?")) {
                for (int id = 0; id < 6; id++) {
                    update.setInt(1, id);
                    update.setInt(2, id);
                    update.executeUpdate();
                }
            }
        }
    }
}
