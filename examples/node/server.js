// A shop on one port, which runs where the primary is: PUT /orders/ID stores an order and counts it, once, however often the
// client repeats the request; GET /orders/ID returns it; GET /total is the sum of all.
//
//   SHOP_DATABASE=/srv/shop/shop.db SHOP_LISTEN=10.0.0.1:8001 node server.js
'use strict';

const http = require('node:http');
const Database = require('better-sqlite3');

const extension = process.env.STANDFAST_EXTENSION || '/usr/local/lib/standfast/libstandfast.so';
new Database(':memory:').loadExtension(extension).close();
const database = new Database(process.env.SHOP_DATABASE, { timeout: 30000 });   // protected

const insert = database.prepare('INSERT INTO orders(number, amount) VALUES(?, ?) ON CONFLICT DO NOTHING');
const count = database.prepare('UPDATE total SET orders = orders + 1, amount = amount + ?');
const store = database.transaction((number, amount) => {
  const isNew = insert.run(number, amount).changes === 1;
  if (isNew) count.run(amount);
  return isNew;
});
const find = database.prepare('SELECT amount FROM orders WHERE number = ?');
const total = database.prepare('SELECT orders, amount FROM total');

function answer(method, path, body) {
  const number = path.match(/^\/orders\/([\w-]+)$/)?.[1];
  if (method === 'GET' && path === '/total') return [200, total.get()];
  if (method === 'GET' && number) return [find.get(number) ? 200 : 404, find.get(number) ?? {}];
  if (method !== 'PUT' || !number) return [404, {}];
  try {
    return [store.immediate(number, JSON.parse(body).amount) ? 201 : 200, {}];
  } catch (error) {
    // The role is changing, or it is not known whether the commit counts: the client repeats the request.
    return [503, { error: error.message }];
  }
}

const server = http.createServer((request, response) => {
  let body = '';
  request.on('data', (chunk) => { body += chunk; });
  request.on('end', () => {
    const [status, document] = answer(request.method, request.url, body);
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(document));
  });
});

const [host, port] = process.env.SHOP_LISTEN.split(':');
server.listen(Number(port), host);
process.on('SIGTERM', () => process.exit(0));
