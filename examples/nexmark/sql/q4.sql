WITH finals AS (
    SELECT auctions.id, auctions.category, max(bids.price) AS final
    FROM auctions
    JOIN bids ON auctions.id = bids.auction AND bids.date_time BETWEEN auctions.date_time AND auctions.expires
    GROUP BY ALL
)
SELECT category, avg(final) AS final
FROM finals
GROUP BY category
