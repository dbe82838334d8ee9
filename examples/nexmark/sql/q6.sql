WITH finals AS (
    SELECT
        auctions.id, auctions.seller, auctions.expires, max(bids.price) AS final,
        arg_max(bids.date_time, (bids.price, -epoch_us(bids.date_time))) AS sold_at
    FROM auctions
    JOIN bids ON auctions.id = bids.auction AND bids.date_time BETWEEN auctions.date_time AND auctions.expires
    GROUP BY ALL
), last_ten AS (
    SELECT seller, final
    FROM finals
    QUALIFY row_number() OVER (PARTITION BY seller ORDER BY expires DESC, sold_at DESC, id DESC) <= 10
)
SELECT seller, avg(final) AS final
FROM last_ten
GROUP BY seller
