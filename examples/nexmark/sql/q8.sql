SELECT DISTINCT persons.id, persons.name, time_bucket(INTERVAL 10 SECONDS, persons.date_time) AS window_start
FROM persons
JOIN auctions
    ON persons.id = auctions.seller
    AND time_bucket(INTERVAL 10 SECONDS, persons.date_time) = time_bucket(INTERVAL 10 SECONDS, auctions.date_time)
