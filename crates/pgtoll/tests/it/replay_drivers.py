"""Does a day's work with a driver: drivers.py DRIVER HOST DATABASE.

Each inserts rows of as many types as it can send, in the forms in which it sends them, and changes rows in
transactions.
"""

import asyncio
import datetime as dt
import decimal
import enum
import ipaddress
import sys
import uuid


class Mood(enum.Enum):
    sad = "sad"
    ok = "ok"
    happy = "happy"


ZONE = dt.timezone(dt.timedelta(hours=2))
# Column by column, with what every driver of Python can make of it.
ROW = {
    "i2": -2,
    "i4": 1 << 30,
    "i8": 1 << 40,
    "f4": 0.5,
    "f8": 0.1,
    "n": decimal.Decimal("-12345.670"),
    "b": True,
    "t": "it's \\ ä 'quoted'",
    "v": "varchar",
    "bytes": b"\x00\xff\\",
    "d": dt.date(2026, 2, 28),
    "ti": dt.time(12, 34, 56, 789),
    "tz": dt.time(12, 34, 56, tzinfo=ZONE),
    "ts": dt.datetime(2026, 11, 27, 1, 2, 3, 4),
    "tstz": dt.datetime(2026, 11, 27, 1, 2, 3, tzinfo=ZONE),
    "iv": dt.timedelta(days=3, seconds=7, microseconds=1),
    "u": uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF),
    "ip": ipaddress.ip_address("10.1.2.3"),
    "net": ipaddress.ip_network("10.1.0.0/16"),
    "ai": [1, None, -3],
    "aai": [[1, 2], [3, 4]],
    "at": ["a\"b", "", "NULL", None],
    "auuid": [uuid.UUID(int=7)],
}


def psycopg2(host, database):
    import psycopg2

    connection = psycopg2.connect(host=host, dbname=database, user="postgres")
    with connection, connection.cursor() as cursor:
        row = dict(ROW, u=str(ROW["u"]), ip=str(ROW["ip"]), net=str(ROW["net"]), auuid=[str(ROW["u"])])
        columns = ", ".join(row)
        marks = ", ".join("%s::uuid[]" if name == "auuid" else "%s" for name in row)
        for number in range(3):
            cursor.execute(
                f"INSERT INTO typed (id, {columns}) VALUES (%s, {marks})", [number, *row.values()]
            )
    for number in range(3):
        with connection, connection.cursor() as cursor:
            cursor.execute("UPDATE typed SET i4 = %s, m = %s WHERE id = %s", [number, "ok", number])
    connection.close()


def psycopg(host, database):
    import psycopg
    from psycopg.types.composite import CompositeInfo, register_composite
    from psycopg.types.enum import EnumInfo, register_enum
    from psycopg.types.range import Range

    # The last one must not confirm anything.
    options = "-c timezone=Asia/Tokyo -c search_path=other,public -c pgtoll.disposable=on"
    connection = psycopg.connect(
        host=host, dbname=database, user="postgres", autocommit=True, options=options
    )
    register_enum(EnumInfo.fetch(connection, "mood"), connection, Mood)
    pair_info = CompositeInfo.fetch(connection, "pair")
    register_composite(pair_info, connection)
    pair = pair_info.python_type
    row = dict(ROW, m=Mood.happy, am=[Mood.sad, None], r=Range(1, 5), dom=7)
    for number, mark in enumerate(["%s", "%b", "%t"]):
        with connection.transaction():
            # A tuple of Python has a text form alone.
            value = pair(number, Mood.ok)
            marks = ", ".join(mark for _ in row)
            connection.execute(
                f"INSERT INTO typed (id, p, {', '.join(row)}) VALUES ({mark}, %s, {marks})",
                [number, value, *row.values()],
                prepare=number == 1,
            )
    with connection.pipeline():
        for number in range(20):
            connection.execute("INSERT INTO typed (id, t) VALUES (%b, %s)", [100 + number, str(number)])
        with connection.transaction():
            connection.execute("UPDATE typed SET i8 = %b WHERE id = %b", [5, 100])
    # What it means depends on the session's time zone.
    connection.execute("UPDATE typed SET tstz = '2026-11-27 01:02:03' WHERE id = 1")
    with connection.cursor() as cursor:
        many = "INSERT INTO typed (id, f8) VALUES (%s, %b)"
        cursor.executemany(many, [(200 + number, number / 3) for number in range(5)])
        with cursor.copy("COPY typed (id, t) FROM STDIN") as copy:
            for number in range(300, 310):
                copy.write_row((number, "tab\tnewline\n"))
        with cursor.copy("COPY typed (id, u) FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int4", "uuid"])
            copy.write_row((310, uuid.UUID(int=310)))
        # The type that is declared, and not the column's, decides what this is.
        cursor.execute("UPDATE typed SET t = pg_typeof(%s)::text || (%b + 1) WHERE id = %b", [1, 2, 200])
    connection.close()


async def asyncpg_work(host, database):
    import asyncpg

    connection = await asyncpg.connect(
        host=host, database=database, user="postgres", server_settings={"timezone": "Asia/Tokyo"}
    )
    point, box = asyncpg.Point(1.5, -2), asyncpg.Box((3, 4), (1, 2))
    row = dict(ROW, m="happy", am=["sad", "ok"], p=(4, "ok"), ap=[(1, "sad"), (2, None)], dom=7)
    row |= {"r": asyncpg.Range(1, 5), "pt": point, "bx": box, "bits": asyncpg.BitString("10101")}
    row |= {"j": '{"a": 1}', "jb": '{"b": [2]}', "chk": (5, "happy"), "mr": [asyncpg.Range(1, 3)]}
    if connection.get_server_version().major < 14:
        del row["mr"]
    marks = ", ".join(f"${at}" for at in range(2, len(row) + 2))
    insert = await connection.prepare(f"INSERT INTO typed (id, {', '.join(row)}) VALUES ($1, {marks})")
    async with connection.transaction():
        for number in range(3):
            await insert.fetch(number, *row.values())
    await connection.executemany(
        "INSERT INTO typed (id, am, u) VALUES ($1, $2, $3)",
        [(10 + number, ["happy"] * number, uuid.UUID(int=number)) for number in range(5)],
    )
    rows = [(20 + number, number / 3) for number in range(10)]
    await connection.copy_records_to_table("typed", records=rows, columns=["id", "f8"])
    for number in range(3):
        await connection.execute("UPDATE typed SET i8 = $2, m = $3 WHERE id = $1", number, 5, "sad")
    await connection.execute("UPDATE typed SET tstz = '2026-11-27 01:02:03' WHERE id = 1")
    await connection.close()


def asyncpg(host, database):
    asyncio.run(asyncpg_work(host, database))


def pg8000(host, database):
    import pg8000.dbapi

    connection = pg8000.dbapi.connect("postgres", unix_sock=f"{host}/.s.PGSQL.5432", database=database)
    cursor = connection.cursor()
    row = dict(ROW, m="happy")
    marks = ", ".join("%s" for _ in row)
    for number in range(3):
        sql = f"INSERT INTO typed (id, {', '.join(row)}) VALUES (%s, {marks})"
        cursor.execute(sql, [number, *row.values()])
    connection.commit()
    for number in range(3):
        cursor.execute("UPDATE typed SET i4 = %s WHERE id = %s", [number, number])
        connection.commit()
    connection.close()


if __name__ == "__main__":
    driver, host, database = sys.argv[1:]
    globals()[driver](host, database)
