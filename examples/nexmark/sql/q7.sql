SELECT time_bucket(INTERVAL 10 SECONDS, date_time) AS window_start, price, auction
FROM bids
QUALIFY row_number() OVER (PARTITION BY window_start ORDER BY price DESC, auction DESC) = 1
