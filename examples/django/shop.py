"""A shop in one file. `PUT /orders/ID` stores an order and counts it, once, however often the client repeats the request;
`GET /orders/ID` returns it; `GET /total` is the sum of all.

    SHOP_DATABASE=/srv/shop/shop.db python3 shop.py create
    SHOP_DATABASE=/srv/shop/shop.db gunicorn --bind 10.0.0.1:8000 --workers 4 shop:application
"""

import json
import os
import sys

import django
from django.conf import settings

settings.configure(
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF=__name__,
    SECRET_KEY=os.environ.get("SHOP_SECRET_KEY", "of the example"),
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": os.environ["SHOP_DATABASE"],
            "CONN_MAX_AGE": 60,
            # Writers queue for the write lock for up to 30 s, from the begin of their transaction.
            "OPTIONS": {"timeout": 30, "transaction_mode": "IMMEDIATE"},
        }
    },
)
django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.db import OperationalError, connection, models, transaction  # noqa: E402
from django.http import HttpResponseNotFound, JsonResponse  # noqa: E402
from django.urls import path  # noqa: E402
from django.views.decorators.http import require_http_methods  # noqa: E402


class Order(models.Model):
    number = models.CharField(primary_key=True, max_length=60)
    amount = models.IntegerField()

    class Meta:
        app_label = "shop"


class Total(models.Model):
    orders = models.IntegerField(default=0)
    amount = models.IntegerField(default=0)

    class Meta:
        app_label = "shop"


@require_http_methods(["PUT", "GET"])
def order(request, number):
    if request.method == "GET":
        found = Order.objects.filter(number=number).first()
        return JsonResponse({"amount": found.amount}) if found else HttpResponseNotFound()
    amount = int(json.loads(request.body)["amount"])
    try:
        with transaction.atomic():
            _, is_new = Order.objects.get_or_create(number=number, defaults={"amount": amount})
            if is_new:
                Total.objects.update(orders=models.F("orders") + 1, amount=models.F("amount") + amount)
    except OperationalError as error:
        # The role is changing, or has changed: this host is not the primary, or it is not known whether the commit counts.
        # The client repeats the request.
        return JsonResponse({"error": str(error)}, status=503)
    return JsonResponse({}, status=201 if is_new else 200)


def total(_request):
    found = Total.objects.get()
    return JsonResponse({"orders": found.orders, "amount": found.amount})


urlpatterns = [path("orders/<slug:number>", order), path("total", total)]
application = get_wsgi_application()


def create():
    with connection.schema_editor() as editor:
        editor.create_model(Order)
        editor.create_model(Total)
    connection.cursor().execute("PRAGMA journal_mode = wal")
    Total.objects.create()


if __name__ == "__main__" and sys.argv[1:] == ["create"]:
    create()
