DROP INDEX orders_customer;
CREATE INDEX orders_customer ON orders (customer);
ANALYZE orders;
